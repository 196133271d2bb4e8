"""What happened, by turn of the user: what the agent said, its calls and their answers."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from context_compaction.activity.digest import effects_in, has_effect, is_failed
from context_compaction.activity.error_line import error_line, error_lines, lines_with
from context_compaction.activity.file_changes import FileChange, changes_of
from context_compaction.activity.script_calls import made_call
from context_compaction.activity.tool_kinds import ToolUse, classify, is_steering
from context_compaction.messages import placeholders
from context_compaction.messages.model import (
    Message,
    Messages,
    Text,
    ToolCall,
    ToolResult,
    is_stand_in,
    named_arguments,
    tool_calls,
)
from context_compaction.messages.speakers import passages_of, user_text
from context_compaction.messages.tool_pairs import index_calls
from context_compaction.messages.tool_results import result_text
from context_compaction.summarizers.extractive.said import pieces_of

_LABEL_CHARS = 120
_SHOWN_CHARS = 60
_FENCED = re.compile(r"```\w*\n(.+?)\n```", re.DOTALL)
# The parts of a command line; what stands in quotes is never parted.
_PARTS = re.compile(
    r"(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|[^'\"\\;&|\n]|(?<!&)&(?!&)|(?<!\|)\|(?!\|)|['\"\\])++",
    re.DOTALL,
)
# Parts that tell nothing of what it is for, and the texts in it.
_SCRIPT = re.compile(
    r"cd |sed -i|(?:cat|tee) .{0,80}>|\w+=|\$[\w:]+ *=|set |(?:for|while|if) |foreach\b|[{}()]"
    r"|(?:do|then|else)\Z|done|fi\b|sleep |printf |git add|python3? -\s*\Z"
)
# What precedes a program: the words of a loop, values for it alone, and the time that it has.
_GIVEN = re.compile(
    r"\A(?:(?:[A-Za-z_]\w*=(?:'[^']*'|\"[^\"]*\"|(?!\$\()[^\s'\"]*)"
    r"|timeout \S+|nice|time|do|then) )+"
)
_GIT_FOLDER = re.compile(r"\bgit -C \S+ ")
# A tool that keeps the agent's own list of tasks; one behind a prefix keeps somebody's.
_OWN_LIST = re.compile(r"\A(?:Task|Todo)[A-Z]|\Aupdate_plan\Z")
# What hosts put behind the report of a sub-agent.
_TRAILER = re.compile(r"(?:^agentId: .{0,400}\n)?<usage>[^<]{0,400}</usage>\s*\Z", re.MULTILINE)
_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w{1,40})\1.*?\n[ \t]*\2[ \t]*(?=\n|\Z)", re.DOTALL)
_HEREDOC_TEXT = re.compile(r'"\$\(cat ' + _HEREDOC.pattern + r'\s*\)"', re.DOTALL)
HEREDOC = "…"  # what stands for one that is left out
_COMMAND_CHARS = 8_000
# Commands that only look; what they find may speak of errors without being one.
_LOOK = re.compile(
    r"\A(?:ls|cat|grep|rg|find|head|tail|sed -n|pwd|echo|wc|which|tree|stat|diff|env|"
    r"md5(?:sum)?|git (?:status|diff|log|show|branch|fsck|rev-parse|ls-files|cat-file|reflog|blame"
    r"|count-objects|worktree list|stash list|config --(?:list|get))"
    r"|gh \w+ (?:view|checks|watch)|xxd|lsof|[\w-]+ (?:[\w-]+ )?(?:status|wait|capture|list))\b"
)
# An output that speaks of trouble though no flag and no status does: anywhere in a line, or at its
# head; and what stands in every such line.
_TROUBLE_WITHIN = re.compile(
    r".{0,200}?(?:error TS\d+|\berror\[\w+\]|\bTraceback \(|\bFAILED\b|[✖×] )"
)
_TROUBLE_AT_HEAD = re.compile(
    r"[ \t]*(?:E +)?(?:[\w.]*(?:Error|Exception)\b|error:|fatal:|npm ERR)"
)
_SIGNS_WITHIN = ("error TS", "error[", "Traceback (", "FAILED", "✖ ", "× ")
_SIGNS_AT_HEAD = ("Error", "Exception", "error:", "fatal:", "npm ERR")
# What says no more than that it failed.
_ONLY_STATUS = re.compile(
    r"\W{0,8}(?:command )?(?:exited|exit|failed|returned)?[\w ]{0,40}\b\d{1,3}\W{0,8}",
    re.IGNORECASE,
)
_SCANNED_CHARS = 20_000
# What hosts answer in place of a call that the user refused, and what the user said with it.
_REFUSED = re.compile(
    r".{0,80}\b(?:user (?:doesn't want|does not want|rejected|denied|declined|refused)"
    r"|(?:rejected|denied|declined|refused) by (?:the )?user)\b",
    re.IGNORECASE,
)
_SAID_WITH_IT = "the user said:"


@dataclass(frozen=True, slots=True)
class Action:
    """One call, or a command that a host without calls ran, and its answer.

    Attributes:
        number: Number of the message that makes it.
        name: The tool's name.
        use: Its kind, path and command.
        label: The call on one line: the parts of its command that do something, or name and
            arguments.
        text: The answer; "" where it is missing or was cleared.
        failed: Whether it failed; None where the answer is missing.
        error: The line that names the error; "" where none does.
        effect: Whether it changed something that must not be changed twice.
        is_refused: Whether the user refused it; then `error` has what the host tells of that.
        call: The call itself.
        keys: These parts without pipes and redirections: the same for each run.
        changes: What it changes in files where it succeeds.
    """

    number: int
    name: str
    use: ToolUse
    label: str
    text: str = ""
    failed: bool | None = False
    error: str = ""
    effect: bool = False
    is_refused: bool = False
    call: ToolCall | None = None
    keys: tuple[str, ...] = ()
    changes: tuple[FileChange, ...] = ()

    @property
    def key(self) -> str:
        """The last part of its command, without pipes and redirections."""
        return self.keys[-1] if self.keys else ""

    @property
    def is_nameless(self) -> bool:
        """Whether it is a script: nothing tells what it does."""
        return self.key.endswith(" -") or _SCRIPT.match(self.key) is not None

    @property
    def shown_key(self) -> str:
        """`key`, cut between words where it is long."""
        cut = self.key[: _SHOWN_CHARS + 1].rpartition(" ")[0] or self.key[:_SHOWN_CHARS]
        return self.key if len(self.key) <= _SHOWN_CHARS else f"{cut} …"

    @property
    def is_compound(self) -> bool:
        """Whether several parts of its command do something: nobody knows whose an error is."""
        return len(self.keys) > 1

    @property
    def is_look(self) -> bool:
        """Whether it is a command that changes and tries nothing."""
        return self.use.kind == "execute" and _LOOK.match(self.label) is not None


@dataclass(slots=True)
class Step:
    """The texts and the calls of one message of the agent."""

    number: int
    said: str
    actions: list[Action] = field(default_factory=list[Action])

    @property
    def pieces(self) -> list[str]:
        """What it says, in pieces; without the commands that a host without calls ran."""
        is_written = any(action.call is None for action in self.actions)
        return pieces_of(_FENCED.sub("", self.said) if is_written else self.said)


@dataclass(slots=True)
class Turn:
    """The steps that follow one message of the user, who `asked` for them."""

    number: int
    asked: str = ""
    steps: list[Step] = field(default_factory=list[Step])

    @property
    def actions(self) -> Iterator[Action]:
        """Its calls, in order."""
        return (action for step in self.steps for action in step.actions)


def turns_of(
    messages: Messages, numbers: Sequence[int | None], kinds: Mapping[str, str]
) -> list[Turn]:
    """The turns of `messages`, oldest first; messages that a compaction wrote are left out."""
    index = index_calls(messages)
    results = {
        block.call_id: block
        for message in messages
        for block in message.blocks
        if isinstance(block, ToolResult)
    }
    turns: list[Turn] = []
    for at, message in enumerate(messages):
        if placeholders.is_synthetic(message):
            continue
        number = numbers[at]
        number = at if number is None else number
        asked = user_text(message).strip() if message.role == "user" else ""
        if asked or not turns:
            turns.append(Turn(number, asked))
        is_agent = message.role == "assistant"
        texts = (block.text for block in message.blocks if is_agent and isinstance(block, Text))
        step = Step(number, "\n".join(texts))
        step.actions += [
            _action(number, block, results.get(block.call_id), kinds)
            for block in message.blocks
            if isinstance(block, ToolCall) and index.calls[block.call_id] is block
        ]
        if step.said.strip() or step.actions:
            turns[-1].steps.append(step)
        for text in _observed(message):
            _observe(turns[-1], number, text)
    return turns


def command_keys(messages: Messages, kinds: Mapping[str, str]) -> frozenset[str]:
    """The keys of the commands that `messages` run."""
    uses = (classify(call, kinds) for message in messages for call in tool_calls(message))
    parts = (_told_parts(use.command)[0] for use in uses if use.command)
    return frozenset(bare_command(part) for told in parts for part in told)


def bare_command(part: str) -> str:
    """A part of a command line on one line, without pipes, redirections and given values."""
    bare = _GIVEN.sub("", part)
    return _one_line(re.split(r"\s*(?:2>|\||>)", bare, maxsplit=1)[0].strip())


def _observed(message: Message) -> Iterator[str]:
    """The texts of tools in a user message."""
    texts = [block for block in message.blocks if isinstance(block, Text)]
    for block in texts if message.role == "user" else ():
        passages = passages_of(message, block)
        yield from (text for author, text in passages if author == "tool" and text.strip())


def _observe(turn: Turn, number: int, text: str) -> None:
    """Add to `turn` an observed text, as the answer to the command that the agent wrote last."""
    fenced = _FENCED.findall(turn.steps[-1].said) if turn.steps else []
    label = _one_line(fenced[-1]) if fenced else "tool"
    if not turn.steps:
        turn.steps.append(Step(number, ""))
    failed = is_trouble(label, text)
    action = Action(
        number, "tool", ToolUse("execute", None, label), label, text, failed,
        error_line(text) if failed else "", keys=(bare_command(label),),
    )  # fmt: skip
    turn.steps[-1].actions.append(action)


def is_trouble(label: str, text: str) -> bool:
    """Whether the output of a command that did not fail reports an error all the same."""
    if _LOOK.match(label):
        return False
    shown = text[:_SCANNED_CHARS]
    return any(map(_TROUBLE_WITHIN.match, lines_with(shown, _SIGNS_WITHIN))) or any(
        map(_TROUBLE_AT_HEAD.match, lines_with(shown, _SIGNS_AT_HEAD))
    )


def _action(
    number: int, call: ToolCall, result: ToolResult | None, kinds: Mapping[str, str]
) -> Action:
    call = made_call(call)
    use = classify(call, kinds)
    has_look = False
    parts = [_call_label(call, use)]
    if use.command:
        parts, has_look = _told_parts(use.command)
    label = _one_line("; ".join(parts))
    action = Action(
        number, call.name, use, label, failed=None, call=call,
        keys=tuple(map(bare_command, parts)), changes=tuple(changes_of(call, use)),
    )  # fmt: skip
    if result is None or is_stand_in(result):
        return action
    text = "" if placeholders.is_placeholder(result) else result_text(result)
    text = text.rstrip()
    if text.endswith("</usage>"):
        text = _TRAILER.sub("", text).rstrip()
    # What a look prints beside it may speak of errors too.
    is_told = use.kind == "execute" and not has_look
    failed = is_failed(result) or (is_told and is_trouble(label, text))
    if is_failed(result) and _REFUSED.match(text):
        said = " ".join(text.partition(_SAID_WITH_IT)[2].split())
        return replace(action, text=text, failed=True, error=said, is_refused=True)
    error = error_line(text) if failed else ""
    if _ONLY_STATUS.fullmatch(error):
        told = error_lines(text).split("\n")
        error = next((line for line in told if not _ONLY_STATUS.fullmatch(line)), "")
    if use.command:
        effect = bool(effects_in(without_heredocs(use.command)))
    else:
        effect = has_effect(call.name, use) and not is_bookkeeping(call.name)
    return replace(action, text=text, failed=failed, error=error, effect=effect)


def is_bookkeeping(tool_name: str) -> bool:
    """Whether a tool steers the work itself: its plan and tasks, its questions, its skills."""
    return is_steering(tool_name) or _OWN_LIST.match(tool_name) is not None


def without_heredocs(command: str) -> str:
    """The first 8,000 characters of a command line, without its heredocs."""
    return _HEREDOC.sub("", _HEREDOC_TEXT.sub(HEREDOC, command[:_COMMAND_CHARS]))


def _told_parts(command: str) -> tuple[list[str], bool]:
    """The parts of a command line that are no script, no change of folder, no look.

    And whether it looks at something beside them.
    """
    bare = without_heredocs(command)
    parts = [part.strip() for part in _PARTS.findall(bare) if part.strip()]
    parts = [_GIT_FOLDER.sub("git ", _GIVEN.sub("", part)) for part in parts]
    parts = [part for part in parts if not _SCRIPT.match(part)] or parts
    told = [_flat(part) for part in parts if not _LOOK.match(part)]
    return told or [*map(_flat, parts[-1:])], 0 < len(told) < len(parts)


def _call_label(call: ToolCall, use: ToolUse) -> str:
    if use.path:
        return f"{call.name}({use.path})"
    arguments = named_arguments(call)
    if not arguments:
        return call.name if isinstance(call.arguments, dict) else f"{call.name}({call.arguments})"
    return f"{call.name}({', '.join(f'{key}={value}' for key, value in arguments.items())})"


def _flat(text: str) -> str:
    return " ".join(text[: _LABEL_CHARS * 4].split())


def _one_line(text: str) -> str:
    flat = _flat(text)
    return flat if len(flat) <= _LABEL_CHARS else flat[: _LABEL_CHARS - 1] + "…"

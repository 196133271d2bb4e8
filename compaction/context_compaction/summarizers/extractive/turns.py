"""What happened, by turn of the user: what the agent said, its calls and their answers."""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from context_compaction.activity.command_line import (
    CommandLine,
    bare_command,
    command_line,
    is_look,
    one_line,
)
from context_compaction.activity.digest import has_effect
from context_compaction.activity.documents import PLAN, filed_in
from context_compaction.activity.error_line import error_line, names_error, reports_trouble
from context_compaction.activity.file_changes import FileChange, Writes, changes_of
from context_compaction.activity.json_rows import named, shown
from context_compaction.activity.late_answers import answers_of, running_head
from context_compaction.activity.outcome import is_failed
from context_compaction.activity.script_calls import made_call
from context_compaction.activity.shown_text import without_head
from context_compaction.activity.tool_kinds import ToolUse, brings_report, classify, is_bookkeeping
from context_compaction.messages import placeholders
from context_compaction.messages.call_ids import with_own_ids
from context_compaction.messages.model import (
    Message,
    Messages,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    is_stand_in,
    named_arguments,
    tool_calls,
    worked_out,
)
from context_compaction.messages.speakers import SKILL_HEAD, passages_of, user_text
from context_compaction.messages.tool_results import result_text, said_in_refusal
from context_compaction.summarizers.extractive.said import is_telling, joined, pieces_of

_FENCED = re.compile(r"```\w*\n(.+?)\n```", re.DOTALL)
# The last sentence of what is said with a call announces it where it is so short.
_ANNOUNCED_CHARS = 90
# What names nothing and is shorter says nothing of why.
WHY_CHARS = 120
# A text that a command files and that is shorter stands whole where the command is told.
_FILED_CHARS = 80
# Lines between borders of box characters, as sketches of a screen and diagrams have them; a tree of
# folders has none at its right.
_DRAWING = re.compile(
    r"(?:^[ \t]*[│┌└├║╔╚╠┃┏┗╭╰][^\n]*[│┐┘┤║╗╝╣┃┓┛╮╯][ \t]*(?:\n|\Z))+", re.MULTILINE
)
# A section of a report, and lines of files that it names.
_POINT = re.compile(r"^#{1,6} .*(?:\n(?!#{1,6} ).*)*", re.MULTILINE)
_PLACE = re.compile(r"([\w.-]{1,80}\.[A-Za-z]{1,5}):\d")
# What Codex has the agent put behind its words for its memory's sake.
_CITATION = re.compile(r"<oai-mem-citation>.*?(?:</oai-mem-citation>|\Z)", re.DOTALL)
# How hosts say that another agent has begun.
_LAUNCHED = re.compile(r"\A(?:\w+ )?agent (?:launched|started)\b", re.IGNORECASE)
# What Claude Code puts below the report of another agent.
_REPORT_END = re.compile(r"\nagentId: [^\n]*(?:\n<usage>.*)?\Z", re.DOTALL)
# How the text begins that a host sends for a skill; that of a command stands behind its name.
_SKILL = (SKILL_HEAD, "<skill>")
_COMMAND_NAME = "<command-name>"
_NEWEST_PLAN = "Plan as of [{}]; later requests go before it:\n\\2"


@dataclass(frozen=True, slots=True)
class Action:
    """One call, or a command that a host without calls ran, and its answer."""

    number: int  # of the message that makes it
    name: str  # of the tool
    use: ToolUse
    label: str  # on one line: the parts of its command that do something, or name and arguments
    keys: tuple[str, ...]  # these parts without pipes and redirections: the same for each run
    call: ToolCall | None = None
    changes: tuple[FileChange, ...] = ()  # in files, where it succeeds
    text: str = ""  # the answer; "" where it is missing or was cleared
    failed: bool | None = None  # None where the answer is missing
    error: str = ""  # the line that names it; of a refused call what the user said with it
    lasting: tuple[str, ...] = ()  # what must not be done twice: parts of its command, or `label`
    is_refused: bool = False  # by the user
    # What stands above the answer of a command that still runs, with the id to wait for it by.
    running_head: str = ""

    @property
    def is_compound(self) -> bool:
        """Whether several parts of its command do something: nobody knows whose an error is."""
        return len(self.keys) > 1

    @property
    def is_look(self) -> bool:
        """Whether it is a command that changes and tries nothing."""
        return self.use.kind == "execute" and is_look(self.label)


@dataclass(slots=True)
class TurnStep:
    """The texts, calls and thoughts of one message; what is filed by it, and reported to it."""

    number: int
    said: str
    actions: list[Action] = field(default_factory=list[Action])
    filed: list[str] = field(default_factory=list[str])
    reports: list[str] = field(default_factory=list[str])
    thought: str = ""

    def add(self, later: "TurnStep") -> None:
        """Take over what a later message does, of which this one has spoken."""
        self.actions += later.actions
        self.filed += later.filed
        self.reports += later.reports

    @property
    def pieces(self) -> list[str]:
        """What it says, in pieces; without the commands that a host without calls ran."""
        is_written = any(action.call is None for action in self.actions)
        return pieces_of(_FENCED.sub("", self.said) if is_written else self.said)

    @property
    def telling(self) -> list[str]:
        """The pieces without a short last one that announces its calls, or waits for them."""
        pieces = self.pieces
        if pieces and any(action.call is not None for action in self.actions):
            last = pieces[-1]
            if last[-1] in ":…：" or (len(last) < _ANNOUNCED_CHARS and not is_telling(last)):
                pieces.pop()
            if not any(map(is_telling, pieces)) and len(joined(pieces)) < WHY_CHARS:
                return []
        return pieces


@dataclass(slots=True)
class Turn:
    """The steps that follow one message of the user, which has the `number`."""

    number: int
    steps: list[TurnStep] = field(default_factory=list[TurnStep])
    # The texts of commands and skills that the host sent for it, by message.
    orders: dict[int, str] = field(default_factory=dict[int, str])

    @property
    def actions(self) -> Iterator[Action]:
        """Its calls, in order."""
        return (action for step in self.steps for action in step.actions)


def turns_of(
    messages: Messages,
    numbers: Sequence[int | None],
    kinds: Mapping[str, str],
    later: Messages = (),
) -> list[Turn]:
    """The turns of `messages`, oldest first; messages that a compaction wrote are left out.

    A plan that the user hands over in `later` is told there alone.
    """
    messages = with_own_ids(messages)
    results = answers_of(messages)
    turns: list[Turn] = []
    written: dict[str, str] = {}
    thought = ""
    for at, (message, given) in enumerate(zip(messages, numbers, strict=True)):
        if placeholders.is_synthetic(message):
            continue
        number = at if given is None else given
        if not turns or (message.role == "user" and user_text(message).strip()):
            turns.append(Turn(number))
            thought = ""
        if message.role != "assistant":
            _hear(turns[-1], number, message, messages[at - 1] if at else None)
            continue
        thoughts = (block.text.strip() for block in message.blocks if isinstance(block, Thinking))
        thought = "\n".join(filter(None, (thought, *thoughts)))  # it may be a message of its own
        step = _step_of(message, number, results, kinds, written)
        before = turns[-1].steps[-1] if turns[-1].steps else None
        if before and not (step.said.strip() or before.actions):
            before.add(step)  # what it announced
        elif step.said.strip() or step.actions:
            step.thought = thought
            turns[-1].steps.append(step)
        else:
            continue
        thought = ""
    _leave_newest(turns, _DRAWING, "drawing", r"\g<0>")
    _shorten_settled(turns)
    handed_over = "".join(word for message in later for word in user_text(message).split())
    _leave_newest(turns, PLAN, "plan", _NEWEST_PLAN, handed_over)
    return turns


def _hear(turn: Turn, number: int, message: Message, before: Message | None) -> None:
    """Add to `turn` what the host sends with a message of another's, and what tools say in it."""
    texts = [block for block in message.blocks if isinstance(block, Text)]
    called = before.blocks if before and texts else ()
    is_command = any(isinstance(one, Text) and _COMMAND_NAME in one.text for one in called)
    for block in texts:
        is_skill = block.author in (None, "host") and block.text.startswith(_SKILL)
        if is_skill or (is_command and block.author == "host"):
            turn.orders[number] = block.text
    said = (passage for block in texts for passage in passages_of(message, block))
    for text in (text for author, text in said if author == "tool" and text.strip()):
        _observe(turn, number, text)


def _step_of(
    message: Message,
    number: int,
    results: Mapping[str, ToolResult],
    kinds: Mapping[str, str],
    written: dict[str, str],
) -> TurnStep:
    """A message of the agent's; what it writes into files is added to `written`."""
    texts = (block for block in message.blocks if isinstance(block, Text))
    own = "\n".join(block.text for block in texts if block.author != "host")
    actions = [
        worked_out(block, _action, number, results.get(block.call_id), kinds)
        for block in message.blocks
        if isinstance(block, ToolCall)
    ]
    said = "\n".join((_CITATION.sub("", own), *map(_handed_in, actions))).strip("\n")
    reports = [_REPORT_END.sub("", action.text) for action in actions if _is_report(action)]
    return TurnStep(number, said, actions, _filed(actions, written), reports)


def _leave_newest(
    turns: Sequence[Turn], pattern: re.Pattern[str], name: str, newest: str, handed_over: str = ""
) -> None:
    """Leave of the agent's drawings or plans the last alone, which takes the place of the others.

    `newest` replaces it, as a template of `pattern` behind the number of its turn; not where it is
    in `handed_over`, which has no spaces.
    """
    steps = ((turn, step, pattern.search(step.said)) for turn in turns for step in turn.steps)
    said = [(turn.number, step, found) for turn, step, found in steps if found]
    for nth, (_, step, found) in enumerate(reversed(said)):
        at = said[-1][0]
        text = f"[a {name}, replaced by [{at}]]\n" if nth else newest.format(at)
        if not nth and handed_over and "".join(found[2].split()) in handed_over:
            text = f"[a {name}, which a later request hands over]\n"
        step.said = pattern.sub(text, step.said)


def _shorten_settled(turns: Sequence[Turn]) -> None:
    """Leave the title of a report's points whose places were changed in later, finished turns.

    A point is a section below a heading, of which a review has several; its places are lines of
    files ("writer.go:12"). What came of it, the turn that changed them says; in the newest it may
    be yet to come.
    """
    changed_at: dict[str, int] = {}
    for turn in reversed(turns):
        for step in turn.steps if changed_at else ():
            points = ((one, {*_PLACE.findall(one)}) for one in _POINT.findall(step.said))
            settled = [(one, names) for one, names in points if names and names <= {*changed_at}]
            for point, names in settled if len(settled) > 1 else ():
                title = point.partition("\n")[0]
                since = min(changed_at[name] for name in names)
                told = f"{title} [in short: its files were changed at [{since}]]\n"
                step.said = step.said.replace(point, told)
        made = (made for one in turn.actions if one.failed is False for made in one.changes)
        if turn is not turns[-1]:
            changed_at.update((posixpath.basename(one.path), turn.number) for one in made)


def command_keys(messages: Messages, kinds: Mapping[str, str]) -> frozenset[str]:
    """The keys of the commands that `messages` run."""
    uses = (classify(call, kinds) for message in messages for call in tool_calls(message))
    return frozenset(key for use in uses if use.command for key in command_line(use.command).keys)


def _filed(actions: Sequence[Action], written: dict[str, str]) -> list[str]:
    """The longer texts that `actions` file, also such as they or earlier ones have `written`."""
    filed: list[str] = []
    for action in actions:
        if action.failed is False:
            made = (one for one in action.changes if isinstance(one, Writes))
            written.update((one.path, one.text) for one in made)
            filed += filed_in(action.use.command or "", written)
    return [text for text in filed if len(text) > _FILED_CHARS]


def _handed_in(action: Action) -> str:
    """What the agent says through a tool that only repeats it, as one does that ends its work."""
    if action.call is None or len(action.text) <= WHY_CHARS:
        return ""
    given = named_arguments(action.call).values()
    size_chars = len(action.text)
    texts = (one for one in given if isinstance(one, str) and len(one) >= size_chars)
    return action.text if any(one.strip() == action.text for one in texts) else ""


def _is_report(action: Action) -> bool:
    """Whether the answer is what another agent found or did: it is told like the agent's words."""
    if action.failed is not False or len(action.text) <= WHY_CHARS:
        return False
    is_one = brings_report(action.name) and not _LAUNCHED.match(action.text)
    return is_one and not _handed_in(action)


def _is_trouble(label: str, text: str) -> bool:
    """Whether the output of a command that did not fail reports an error all the same."""
    return not is_look(label) and reports_trouble(text)


def _observe(turn: Turn, number: int, text: str) -> None:
    """Add to `turn` an observed text, as the answer to the command that the agent wrote last."""
    if not turn.steps:
        turn.steps.append(TurnStep(number, ""))
    fenced = _FENCED.findall(turn.steps[-1].said)
    label = one_line(fenced[-1]) if fenced else "tool"
    use = ToolUse("execute", None, label)
    failed = _is_trouble(label, text)
    error = error_line(text) if failed else ""
    key = bare_command(label)
    turn.steps[-1].actions.append(
        Action(number, "tool", use, label, (key,), text=text, failed=failed, error=error)
    )


def _action(
    call: ToolCall, number: int, result: ToolResult | None, kinds: Mapping[str, str]
) -> Action:
    call = made_call(call)
    use = classify(call, kinds)
    if use.command:
        line = command_line(use.command)
    else:
        told = use.path or named(named_arguments(call)) or shown(call.arguments)
        label = one_line(f"{call.name}({told})" if told else call.name)
        is_lasting = has_effect(call.name, use) and not is_bookkeeping(call.name)
        line = CommandLine((label,), (label,) if is_lasting else ())
    label, changes = one_line("; ".join(line.told)), tuple(changes_of(call, use))
    action = partial(
        Action, number, call.name, use, label, line.keys, call, changes, lasting=line.lasting
    )
    if result is None or is_stand_in(result):
        return action()
    given = "" if placeholders.is_placeholder(result) else result_text(result)
    text, head = without_head(given)[0].strip("\n").rstrip(), running_head(given)
    failed = bool(is_failed(result))
    if failed and (said := said_in_refusal(result)) is not None:
        return action(text=text, failed=True, error=said, is_refused=True, running_head=head)
    # What a look prints beside it may speak of errors too.
    is_told = use.kind == "execute" and not line.has_look
    failed = failed or (is_told and _is_trouble(label, text))
    error = error_line(text) if failed else ""
    if line.has_look and not names_error(error):
        error = ""  # nobody knows whether the look failed: a folder that is not there, no match
    return action(text=text, failed=failed, error=error, running_head=head)

"""Who said each text: the user, the agent, a tool, the host, or a compaction of ours.

A message's role does not tell. Hosts hand over in the user's name what no user typed: outputs of
commands, notes of their own, reports of sub-agents, files. Where a format says so, `formats` sets
the author of a block; where only the list tells, `with_authors` does; and within what is left to
the user, the passages in frames that hosts write are theirs. Only the rest is the user's word:
pins, rules and requests are read from it and from nothing else. Pure, and linear in the text.

Texts of ours are known by the receipts of the archive: anybody can write one that looks like it.

Results that pose: hosts without tool calls (SWE-agent, ReAct loops, mini-swe-agent, OpenHands and
Cline in their text modes) run what the assistant wrote and say the outcome in the user's name.
Nobody typed that. It shows in two ways: a label of the host's at its beginning; or a shell's prompt
at its end, and that again and again. Either only after the assistant has spoken.

Rules of the project that a host hands over in the user's name (AGENTS.md, CLAUDE.md, GEMINI.md):
they bind like a system prompt, and nobody typed them. The frame that the host puts around them
tells, around a text as a whole: a quotation of it is none, nor is what a tool answered.
"""

import re
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from context_compaction.messages import placeholders
from context_compaction.messages.model import (
    Author,
    Block,
    Message,
    Messages,
    Part,
    Role,
    Text,
    ToolResult,
    tool_results,
)
from context_compaction.messages.tool_pairs import with_loaded_tools

# The frames, each from the beginning of a text to its end.
_FRAME = re.compile(
    r"\s*(?:# (?P<file>[\w.-]{1,80}) instructions\b[^\n]{0,400}\s+(?=<INSTRUCTIONS>))?"
    r"<(?P<tag>INSTRUCTIONS|system-reminder|user_instructions|user_rules|project_instructions"
    r"|project_context|repository_instructions|workspace_rules|always_applied_workspace_rules"
    r"|session_context|system-interrupt)(?=[\s>])",
    re.IGNORECASE,
)
# What some frames hold besides rules too; those begin with one of these.
_FRAMES_OF_ALL = frozenset({"system-reminder", "session_context"})
_MEMORY = ("# claudeMd", "Codebase and user instructions are shown below")
_CONTENTS = re.compile(
    r"Contents of ([^\n]{0,400}?(?:(?:CLAUDE|AGENTS|GEMINI)(?:\.\w+)?\.md|/rules/[^/\n]{1,120}))"
    r"(?: \([^\n]{1,200}\))?:"
)
_LOADED = ("--- Context from: ", "<loaded_context>")
_HEAD_CHARS = 600


def with_project_rules(messages: Messages, *, is_posed: bool) -> Messages:
    """`messages`, of every text of project rules the newest with the author "project".

    What precedes it of the same kind is the host's. A message in which nobody else speaks is the
    project's as a whole.

    Args:
        messages: The list, with the authors that are known.
        is_posed: Whether tools answer in the user's name: then only a text counts that no tool can
            have written, which is one before the assistant has spoken.
    """
    places = list(_places(messages, is_posed=is_posed))
    if not places:
        return messages
    newest = {kind: (at, number) for kind, at, number in places}
    out = list(messages)
    for kind, at, number in places:
        is_newest = newest[kind] == (at, number)
        out[at] = with_author("project" if is_newest else "host", out[at], {number})
    for at in {at for _, at, _ in places}:
        out[at] = _as_a_whole(out[at])
    return tuple(out)


def with_author(author: Author, message: Message, numbers: Container[int]) -> Message:
    """`message` with `author` as that of the texts among its blocks `numbers`."""
    blocks = (
        replace(block, author=author) if number in numbers and isinstance(block, Text) else block
        for number, block in enumerate(message.blocks)
    )
    return replace(message, blocks=tuple(blocks))


def rules_kind_of(block: Text) -> str | None:
    """The name of the file whose rules `block` holds, or of their frame; None for other texts."""
    text = block.text
    if block.author == "project" and (kind := placeholders.rules_kind(text)):
        return kind
    if block.author not in (None, "host", "project"):
        return None
    if _sets_up(text):
        return "GEMINI.md" if _is_loaded(text) else None
    frame = _FRAME.match(text)
    if frame is None or not text.rstrip().lower().endswith(f"</{frame['tag'].lower()}>"):
        return None
    if frame["tag"].lower() not in _FRAMES_OF_ALL:
        # Oh My Pi interrupts an answer with the one rule that it breaks, and names it.
        tag = text[frame.end() : frame.end() + _HEAD_CHARS].partition(">")[0]
        rule = tag.partition(' rule="')[2].partition('"')[0]
        return rule or frame["file"] or frame["tag"]
    if _sets_up(text[frame.end() + 1 : frame.end() + _HEAD_CHARS]):
        return "GEMINI.md" if _is_loaded(text) else None
    if any(mark in text[:_HEAD_CHARS] for mark in _MEMORY):
        return "CLAUDE.md"
    contents = _CONTENTS.search(text, 0, _HEAD_CHARS)
    return contents[1] if contents else None


def _places(messages: Messages, *, is_posed: bool) -> Iterator[tuple[str, int, int]]:
    """The kind of each text of rules, the position of its message, and of the block in that."""
    for at, message in enumerate(messages):
        if is_posed and message.role == "assistant":
            return
        for number, block in enumerate(message.blocks if message.role == "user" else ()):
            if isinstance(block, Text) and (kind := rules_kind_of(block)):
                yield kind, at, number


def _sets_up(text: str) -> bool:
    """Whether a text begins as Gemini CLI and its kin hand over what they have loaded."""
    line = text[:_HEAD_CHARS].lstrip().partition("\n")[0]
    return line.startswith("This is ") and ". We are setting up the context for " in line


def _is_loaded(text: str) -> bool:
    return any(mark in text[:100_000] for mark in _LOADED)


def _as_a_whole(message: Message) -> Message:
    """`message`, the project's where it has its rules, and no word of the user's or of a tool's."""
    texts = [block for block in message.blocks if isinstance(block, Text)]
    is_mixed = len(texts) < len(message.blocks) or any(a != "host" for a, _ in passages(message))
    if is_mixed or all(text.author != "project" for text in texts):
        return message
    return with_author("project", message, range(len(texts)))


_LABEL = re.compile(
    r"\s*(?:"
    r"\W{0,4}(?:(?:tool|command|function|code|terminal|shell|execution|action)[ _]"
    r"(?:results?|output|response)|observation|stdout|exit ?code|return ?code)\b"
    r"[^\n]{0,80}?[:>\n]"
    r"|<(?:output|observation|result|tool_result|function_results?|returncode)\b[^\n>]{0,80}>"
    r"|\[\w+(?: for '[^\n']{0,200}')?\] Result:"
    r")",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ProvenTexts:
    """What the archive vouches for.

    Attributes:
        hashes: `placeholders.receipt_hash` of the messages that compactions have put into the
            session.
        output_ids: Outputs that it keeps.
    """

    hashes: Set[str] = frozenset()
    output_ids: Set[str] = frozenset()


NO_PROVEN_TEXTS = ProvenTexts()


@dataclass(frozen=True, slots=True)
class Claims:
    """What a list says of itself, before anybody has looked into the archive.

    Attributes:
        messages: The hash of each text like a message of ours, and the session that it names; ""
            where it names none.
        output_ids: The outputs that placeholders like ours name.
    """

    messages: Sequence[tuple[str, str]]
    output_ids: Set[str]

    @property
    def any(self) -> bool:
        """Whether anything is claimed."""
        return bool(self.messages or self.output_ids)

    @property
    def session_ids(self) -> tuple[str, ...]:
        """The sessions that are named, in their order."""
        return tuple(dict.fromkeys(session_id for _, session_id in self.messages if session_id))

    def hashes_of(self, session_id: str) -> Set[str]:
        """The texts that name `session_id`."""
        return {found for found, named in self.messages if named == session_id}


def claims_in(messages: Messages) -> Claims:
    """What `messages` claim to have from us."""
    found: list[tuple[str, str]] = []
    output_ids: set[str] = set()
    for text in _texts(messages):
        if placeholders.seems_synthetic(text):
            span = placeholders.claimed_span(text)
            found.append((placeholders.receipt_hash(text), span.session_id if span else ""))
        output_ids.update(placeholders.ids_in_placeholder(text))
    return Claims(found, output_ids)


def receipt_hashes_in(messages: Messages) -> tuple[str, ...]:
    """The hashes of the messages of ours that `messages` hold, so that they are known again."""
    made = (
        block.text
        for message in messages
        for block in message.blocks
        if isinstance(block, Text) and block.author in ("compaction", "project", "user")
    )
    return tuple(
        placeholders.receipt_hash(text) for text in made if placeholders.seems_synthetic(text)
    )


def with_authors(messages: Messages, ours: ProvenTexts = NO_PROVEN_TEXTS) -> Messages:
    """`messages`, each text whose author is another than its message's role with that author."""
    told = tuple(_beside_results(_vouched(message, ours)) for message in messages)
    spoken = [
        at
        for at in range(1, len(told))
        if told[at - 1].role == "assistant" and placeholders.is_request(told[at])
    ]
    labelled = {at for at in spoken if _texts_alone(told[at]) and _is_labelled(told[at])}
    prompted = {at for at in spoken if _texts_alone(told[at]) and _ends_in_prompt(told[at])}
    # Fewer prompts at the ends of texts may be a person who pastes what he saw.
    often = len(labelled | prompted) >= max(3, len(spoken) // 2 + 1)
    posed = labelled | prompted if often else labelled
    told = tuple(_by_tool(message) if at in posed else message for at, message in enumerate(told))
    return with_loaded_tools(with_project_rules(told, is_posed=bool(posed)))


def _beside_results(message: Message) -> Message:
    """`message`, with the host as the author of its texts beside results that no user typed."""
    if message.role != "user" or len(message.blocks) < 2 or not tool_results(message):
        return message
    numbers = {
        number
        for number, block in enumerate(message.blocks)
        if isinstance(block, Text)
        and author_of(message, block) == "user"
        and (_REMARK.fullmatch(block.text) or _is_framed(message, block))
    }
    return with_author("host", message, numbers) if numbers else message


def _is_framed(message: Message, block: Text) -> bool:
    return all(author != "user" for author, _ in passages_of(message, block))


def unproven_summary_warning(messages: Messages) -> str | None:
    """What to tell of messages that look like ours and are not; None where there are none."""
    for at, message in enumerate(messages):
        only = message.blocks[0] if len(message.blocks) == 1 else None
        if not isinstance(only, Text) or message.role != "user" or only.author == "compaction":
            continue
        if placeholders.claimed_span(only.text) is not None:
            return (
                f"Message {at} looks like a summary of this server's, but the archive has no "
                "receipt for it. It is taken as a plain text: its pins and rules are not carried. "
                "If it is yours, state its rules again, or pass them as pinned."
            )
    return None


def _texts(messages: Messages) -> Iterator[str]:
    """The texts in which something of ours may stand: the user's, and those of results."""
    for message in messages:
        for block in message.blocks:
            if isinstance(block, Text) and message.role == "user":
                yield block.text
            elif isinstance(block, ToolResult):
                yield from (part.text for part in block.content if isinstance(part, Text))


def _vouched(message: Message, ours: ProvenTexts) -> Message:
    if message.role != "user":
        return message
    blocks = tuple(_vouched_block(block, ours) for block in message.blocks)
    if all(new is old for new, old in zip(blocks, message.blocks, strict=True)):
        return message
    return replace(message, blocks=blocks)


def _vouched_block(block: Block, ours: ProvenTexts) -> Block:
    if isinstance(block, Text):
        author = _author(block, ours)
        return block if author is None else replace(block, author=author)
    if not isinstance(block, ToolResult) or not ours.output_ids:
        return block
    parts = tuple(_vouched_part(part, ours) for part in block.content)
    if all(new is old for new, old in zip(parts, block.content, strict=True)):
        return block
    return replace(block, content=parts)


def _vouched_part(part: Part, ours: ProvenTexts) -> Part:
    if isinstance(part, Text) and _is_known(part.text, ours):
        return replace(part, author="compaction")
    return part


def _author(block: Text, ours: ProvenTexts) -> Author | None:
    """The author of a text in a message of the user's; None where it is as it says."""
    if placeholders.seems_synthetic(block.text):
        if not ours.hashes or placeholders.receipt_hash(block.text) not in ours.hashes:
            return None
        if placeholders.rules_kind(block.text):
            return "project"
        return "user" if placeholders.is_long_request(block.text) else "compaction"
    if _is_known(block.text, ours):
        return "compaction"
    return (
        "tool"
        if block.text.startswith((placeholders.ORPHAN_RESULT, placeholders.ORPHAN_CALL))
        else None
    )


def _is_known(text: str, ours: ProvenTexts) -> bool:
    ids = placeholders.ids_in_placeholder(text) if ours.output_ids else ()
    return bool(ids) and ours.output_ids >= set(ids)


def _texts_alone(message: Message) -> bool:
    return all(
        isinstance(block, Text) and author_of(message, block) == "user" for block in message.blocks
    )


def _is_labelled(message: Message) -> bool:
    return bool(_LABEL.match(_text(message, 0)))


def _ends_in_prompt(message: Message) -> bool:
    end = _text(message, -1)[-_HEAD_CHARS:].rstrip()
    line = end.rpartition("\n")[2]
    is_short = len(line) <= 60 and not any(map(str.isspace, line))
    return is_short and line.endswith(("$", "#", "%", ">"))


def _text(message: Message, at: int) -> str:
    block = message.blocks[at] if message.blocks else None
    return block.text if isinstance(block, Text) else ""


def _by_tool(message: Message) -> Message:
    texts = (block for block in message.blocks if isinstance(block, Text))
    return replace(message, blocks=tuple(replace(block, author="tool") for block in texts))


# Frames in which hosts put what they, tools and sub-agents say into a message of the user's:
# Claude Code, Codex, Cline and its kin, loops without tool calls, documents in a prompt, ourselves.
_FRAMES = frozenset({
    "system-reminder", "local-command-stdout", "local-command-stderr", "local-command-caveat",
    "command-name", "command-message", "bash-input", "bash-stdout", "bash-stderr",
    "task-notification", "teammate-message", "user-prompt-submit-hook", "tool_use_error",
    "agent-message", "cross-session-message", "ci-monitor-event",
    "ide_opened_file", "ide_selection", "ide_diagnostics", "new-diagnostics",
    "environment_context", "user_instructions", "user_shell_command",
    "subagent_notification", "turn_aborted", "skill", "system",
    "environment_details", "file_content", "folder_content",
    "tool_result", "tool_results", "tool_response", "tool_output", "tool_outputs",
    "function_result", "function_results", "function_response", "function_output", "observation",
    "stdout", "stderr", "document", "documents", "attachment", "attachments", "attached_files",
    "search_results", "web_page", "webpage", "page_content", "external_content", "email",
    "context_summary", "turn_context", "restored_files", "changed_files", "open_todos",
    "persisted-output",
    "pinned",
})  # fmt: skip
# How the text of a skill begins that its host sends for it.
SKILL_HEAD = "Base directory for this skill: "
# How texts begin that hosts write whole: of a file, of commands, of what was summarised, what a
# peer says with the host's advice behind it.
_HOST_HEADS = (
    "# AGENTS.md instructions for ",
    "Caveat: The messages below were generated by the user while running local commands.",
    "This session is being continued from a previous conversation",
    "Another language model started to solve this problem",
    "This is the Gemini CLI. We are setting up the context for our chat.",
    "Another Claude session sent a message:\n",
    SKILL_HEAD,
    "[Media archived: ",
)
# What Claude Code puts around what the user typed behind a command, or alone in its place.
_TYPED_TAG = re.compile(
    r"</?command-args>|^\[Request interrupted by user(?: for tool use)?\]$"
    r"|^Read the output file to retrieve the result: /\S+\.output$",
    re.M,
)
# What a host says beside a result ("Tool loaded.", "2 tools loaded: Read, Grep").
_REMARK = re.compile(
    r"\s*(?:\d+ )?(?:[\w-]+ ){0,3}(?:tool|skill|function|schema|command|call|result)s? "
    r"(?:[\w-]+ ){0,3}(?:loaded|available|enabled|ready|executed|completed|finished|returned)"
    r"(?: successfully)?(?:: [\w ,.-]{1,200})?[.!]?\s*",
    re.IGNORECASE,
)
# The name is looked up after the match, because a choice of 60 words is tried at every bracket.
_TAG = re.compile(r"<(/?)([a-z_-]{4,24}+)(?=[\s/>])", re.IGNORECASE)
# What stands before a line in a summary.
LABELS: Mapping[Author, str] = {
    "user": "user: ", "agent": "agent: ", "tool": "tool: ", "host": "host: ",
}  # fmt: skip
_LABELS: Mapping[str, Author] = {label.rstrip(": "): author for author, label in LABELS.items()}
_BY_ROLE: Mapping[Role, Author] = {"user": "user", "assistant": "agent", "system": "host"}


def author_of(message: Message, block: Text) -> Author:
    """Who said `block` of `message`, on the whole; `passages` tells more of a user's text."""
    return block.author or _BY_ROLE[message.role]


def passages(message: Message) -> Iterator[tuple[Author, str]]:
    """The texts of `message` with their authors, in order; tool results are left out."""
    for block in message.blocks:
        if isinstance(block, Text):
            yield from passages_of(message, block)


def passages_of(message: Message, block: Text) -> Iterator[tuple[Author, str]]:
    """The same for one text of `message`."""
    author = "host" if placeholders.is_labelled_system(message) else author_of(message, block)
    author = "host" if author == "project" else author  # who hands its rules over
    if block.author == "user":
        yield from _by_line(block.text)
    elif author != "user":
        yield author, block.text
    elif placeholders.seems_synthetic(block.text) or block.text.startswith(_HOST_HEADS):
        yield "host", block.text
    else:
        yield from _apart(block.text)


def user_texts(message: Message) -> list[str]:
    """What the user typed in `message`; nothing where somebody else speaks in the user's name."""
    if message.role != "user":
        return []
    return [text for author, text in passages(message) if author == "user"]


def user_text(message: Message) -> str:
    """What the user typed in `message`, as one text."""
    return "\n".join(user_texts(message))


def _by_line(text: str) -> Iterator[tuple[Author, str]]:
    """The lines of an extract of ours from a text of the user's, which says whose others are."""
    lines = text.splitlines()
    for line in lines[2:-1] if placeholders.is_long_request(text) else lines:  # within its frame
        label = line.partition(": ")[0]
        yield _LABELS.get(label, "user"), line


def _apart(text: str) -> Iterator[tuple[Author, str]]:
    """The passages of a text of the user's: in a host's frame, and outside of all frames."""
    at = 0
    for start, stop in sorted(_framed(text)):
        if typed := _typed(text[at:start]):
            yield "user", typed
        if stop > at:
            yield "host", text[max(start, at) : stop]
        at = max(at, stop)
    if typed := _typed(text[at:]):
        yield "user", typed


def _typed(text: str) -> str:
    """`text` without the host's tags and notes; empty where nothing is left."""
    bare = _TYPED_TAG.sub("", text)
    return bare if bare.strip() else ""


def _framed(text: str) -> list[tuple[int, int]]:
    """Where frames stand; they may overlap.

    A frame goes from the first tag of its name to the last: what is in it may hold such tags,
    forged to look like its end, and what follows them is no user's. One without an end, where it
    begins a line, goes to the end of the text.
    """
    if "<" not in text:
        return []
    opened: dict[str, int] = {}  # by name the first
    reopened: dict[str, int] = {}  # by name the last that begins a line
    closed: dict[str, int] = {}  # by name the end of the last
    seen = 0  # a tag before this one in its line stands behind here: no line is read twice
    for found in _TAG.finditer(text):
        name = found[2].lower()
        if name not in _FRAMES:
            continue
        line = text[seen : found.start()].rpartition("\n")[2]
        seen = found.start()
        if found[1]:
            end = text.find(">", found.end())
            closed[name] = len(text) if end < 0 else end + 1
            continue
        opened.setdefault(name, found.start())
        if not line.strip():
            reopened[name] = found.start()
    frames: list[tuple[int, int]] = []
    for name, start in opened.items():
        stop = closed.get(name, 0)
        if reopened.get(name, -1) >= stop:
            frames.append((start if stop > start else reopened[name], len(text)))
        elif stop > start:
            frames.append((start, stop))
    return frames

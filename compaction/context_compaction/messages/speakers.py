"""The author of each text: the user, the agent, a tool, the host, the project, or this library.

The role of a message does not prove its author. Hosts put command output, their own notes, reports
of sub-agents and files into user messages. The author is found in three steps. `formats` sets it if
the format says so. `with_authors` sets it if the list shows it. `passages` then separates the
frames that hosts write from the rest of a user's text. Only that rest is the user's word: pins,
rules and requests are read from nothing else. All functions are pure and linear in the text.

- Texts of this library are recognized by the archive's receipts, because anybody can imitate them.
- Hosts without tool calls (SWE-agent, ReAct loops, OpenHands and Cline in their text modes) put
  results into user messages. They start with a label, or repeatedly end with a shell prompt, and
  follow a message of the assistant.
- Project rules (AGENTS.md, CLAUDE.md, GEMINI.md) bind like a system prompt, but the user did not
  type them. They are recognized by the host's frame around the whole text, never by a quotation.
- A reminder before the first answer tells what the whole session may use, such as skills and
  agents. The host does not repeat it, so it counts as a rule of the project.
"""

import re
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from context_compaction.messages import placeholders
from context_compaction.messages.model import (
    SHOWN_CHARS,
    Author,
    Block,
    Message,
    Messages,
    Part,
    Role,
    Text,
    ToolResult,
    is_same,
    text_of,
    tool_results,
)
from context_compaction.messages.tool_pairs import with_loaded_tools

# Frames around project rules, from the start of a text to its end.
_RULES_FRAME = re.compile(
    r"\s*(?:# (?P<file>[\w.-]{1,80}) instructions\b[^\n]{0,400}\s+(?=<INSTRUCTIONS>))?"
    r"<(?P<tag>INSTRUCTIONS|system-reminder|user_instructions|user_rules|project_instructions"
    r"|project_context|repository_instructions|workspace_rules|always_applied_workspace_rules"
    r"|session_context|system-interrupt)(?=[\s>])",
    re.IGNORECASE,
)
# These frames also contain other texts. They contain rules if they start with certain words.
_SHARED_FRAMES = frozenset({"system-reminder", "session_context"})
_CLAUDE_HEADS = ("# claudeMd", "Codebase and user instructions are shown below")
_RULES_FILES = ("CLAUDE.", "AGENTS.", "GEMINI.")
_GEMINI_HEADS = ("--- Context from: ", "<loaded_context>")
_HEAD_CHARS = 600


def with_project_rules(messages: Messages, *, has_posed_results: bool) -> Messages:
    """Return `messages` with the author "project" on the newest text of each kind of rules.

    Earlier texts of the same kind get the author "host". A message in which only the host and the
    project speak becomes the project's as a whole.

    Args:
        messages: The list, with the authors that are known.
        has_posed_results: Whether tool results are in user messages. Then only texts before the
            first assistant message count, because a tool could have written later ones.
    """
    places = list(_rules_places(messages, has_posed_results=has_posed_results))
    newest = {kind: (index, number) for kind, index, number in places}
    out = list(messages)
    for kind, index, number in places:
        is_newest = newest[kind] == (index, number)
        out[index] = with_author("project" if is_newest else "host", out[index], {number})
    for index in {index for _, index, _ in places}:
        out[index] = _with_project_as_only_author(out[index])
    return tuple(out) if places else messages


def with_author(author: Author, message: Message, numbers: Container[int]) -> Message:
    """Return `message` with `author` set on the texts among its blocks `numbers`."""
    blocks = (
        replace(block, author=author) if number in numbers and isinstance(block, Text) else block
        for number, block in enumerate(message.blocks)
    )
    return replace(message, blocks=tuple(blocks))


def rules_kind_of(block: Text, *, is_start: bool = False) -> str | None:
    """Return the file name of the rules in `block`, or the name of their frame; else None.

    With `is_start`, before the first answer, each reminder of the host has the kind of its heading.
    """
    text = block.text
    if block.author == "project" and (kind := placeholders.rules_kind(text)):
        return kind
    if block.author not in (None, "host", "project"):
        return None
    if _is_gemini_setup(text):
        return _gemini_kind(text)
    frame = _RULES_FRAME.match(text)
    if frame is None or not text.rstrip().lower().endswith(f"</{frame['tag'].lower()}>"):
        return None
    head = text[frame.end() : frame.end() + _HEAD_CHARS]
    if frame["tag"].lower() not in _SHARED_FRAMES:
        # Oh My Pi interrupts an answer with the one rule that it breaks, and names the rule.
        rule = head.partition(">")[0].partition(' rule="')[2].partition('"')[0]
        return rule or frame["file"] or frame["tag"]
    if _is_gemini_setup(head[1:]):
        return _gemini_kind(text)
    if any(words in text[:_HEAD_CHARS] for words in _CLAUDE_HEADS):
        return "CLAUDE.md"
    is_reminder = (is_start or block.author == "project") and frame["tag"] == "system-reminder"
    return _rules_file_in(text[:_HEAD_CHARS]) or (_heading_of(head) if is_reminder else None)


def _heading_of(head: str) -> str:
    """Return the first line in a frame as a kind of rules."""
    line = head.partition(">")[2].strip().partition("\n")[0]
    return line.replace('"', "'")[:SHOWN_CHARS]


def _rules_file_in(head: str) -> str | None:
    """Return the path in the line "Contents of PATH (description):" if it is a file of rules."""
    line = head.partition("Contents of ")[2].partition("\n")[0]
    path = line.partition(" (")[0].partition(":")[0]
    name = path.rpartition("/")[2]
    is_rules_file = name.startswith(_RULES_FILES) and name.endswith(".md")
    return path if ":" in line and (is_rules_file or "/rules/" in path) else None


def _rules_places(messages: Messages, *, has_posed_results: bool) -> Iterator[tuple[str, int, int]]:
    """Yield each text of rules: its kind, the message index, and the block number."""
    is_start = True
    for index, message in enumerate(messages):
        is_start &= message.role != "assistant"
        if has_posed_results and not is_start:
            return
        for number, block in enumerate(message.blocks if message.role == "user" else ()):
            if isinstance(block, Text) and (kind := rules_kind_of(block, is_start=is_start)):
                yield kind, index, number


def _is_gemini_setup(text: str) -> bool:
    """Whether a text starts like the context that Gemini CLI and its forks load."""
    line = text[:_HEAD_CHARS].lstrip().partition("\n")[0]
    return line.startswith("This is ") and ". We are setting up the context for " in line


def _gemini_kind(text: str) -> str | None:
    return "GEMINI.md" if any(words in text[:100_000] for words in _GEMINI_HEADS) else None


def _with_project_as_only_author(message: Message) -> Message:
    """Return `message` as the project's if it has rules and no words of the user or a tool."""
    texts = [block for block in message.blocks if isinstance(block, Text)]
    is_mixed = len(texts) < len(message.blocks) or any(a != "host" for a, _ in passages(message))
    if is_mixed or all(text.author != "project" for text in texts):
        return message
    return with_author("project", message, range(len(texts)))


# The start of a tool result in a user message.
_RESULT_LABEL = re.compile(
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
    """The texts that the archive proves to be written by this library.

    Attributes:
        hashes: `placeholders.receipt_hash` of the messages that compactions added to the session.
        output_ids: IDs of the stored outputs.
    """

    hashes: Set[str] = frozenset()
    output_ids: Set[str] = frozenset()


NO_PROVEN_TEXTS = ProvenTexts()


@dataclass(frozen=True, slots=True)
class Claims:
    """The texts in a list that look like texts of this library, before the archive is asked.

    Attributes:
        messages: The receipt hash of each such text, and the session that it names; "" if none.
        output_ids: The outputs named by placeholders.
    """

    messages: Sequence[tuple[str, str]]
    output_ids: Set[str]

    @property
    def any(self) -> bool:
        """Whether the list contains such a text."""
        return bool(self.messages or self.output_ids)

    @property
    def session_ids(self) -> tuple[str, ...]:
        """The named sessions, in order."""
        return tuple(dict.fromkeys(session_id for _, session_id in self.messages if session_id))

    def hashes_of(self, session_id: str) -> Set[str]:
        """Return the hashes of the texts that name `session_id`."""
        return {text_hash for text_hash, named in self.messages if named == session_id}


def claims_in(messages: Messages) -> Claims:
    """Return the texts in `messages` that look like texts of this library."""
    claimed: list[tuple[str, str]] = []
    output_ids: set[str] = set()
    for text in _texts_of_user_and_results(messages):
        if placeholders.seems_synthetic(text):
            span = placeholders.claimed_span(text)
            claimed.append((placeholders.receipt_hash(text), span.session_id if span else ""))
        output_ids.update(placeholders.ids_in_placeholder(text))
    return Claims(claimed, output_ids)


def receipt_hashes_in(messages: Messages) -> tuple[str, ...]:
    """Return the hashes of this library's texts in `messages`, for the receipt."""
    texts = (
        block.text
        for message in messages
        for block in message.blocks
        if isinstance(block, Text) and block.author in ("compaction", "project", "user")
    )
    return tuple(
        placeholders.receipt_hash(text) for text in texts if placeholders.seems_synthetic(text)
    )


def with_authors(messages: Messages, proven: ProvenTexts = NO_PROVEN_TEXTS) -> Messages:
    """Return `messages` with the author on each text whose author differs from its role."""
    known = tuple(_with_host_near_results(_with_proven(m, proven)) for m in messages)
    after_assistant = [
        index
        for index in range(1, len(known))
        if known[index - 1].role == "assistant" and placeholders.is_request(known[index])
    ]
    typed = [index for index in after_assistant if _has_only_user_texts(known[index])]
    labelled = {index for index in typed if _RESULT_LABEL.match(_text_at(known[index], 0))}
    prompted = {index for index in typed if _ends_in_prompt(known[index])}
    # A few texts that end in a shell prompt may be pasted by the user.
    is_loop = len(labelled | prompted) >= max(3, len(after_assistant) // 2 + 1)
    posed = labelled | prompted if is_loop else labelled
    if posed:
        known = tuple(
            with_author("tool", message, range(len(message.blocks))) if index in posed else message
            for index, message in enumerate(known)
        )
    return with_loaded_tools(with_project_rules(known, has_posed_results=bool(posed)))


def _with_host_near_results(message: Message) -> Message:
    """Return `message` with the author "host" on texts next to results that no user typed."""
    if message.role != "user" or len(message.blocks) < 2 or not tool_results(message):
        return message
    numbers = {
        number
        for number, block in enumerate(message.blocks)
        if isinstance(block, Text)
        and author_of(message, block) == "user"
        and (_is_remark(block.text) or _has_only_frames(message, block))
    }
    return with_author("host", message, numbers) if numbers else message


def _has_only_frames(message: Message, block: Text) -> bool:
    return all(author != "user" for author, _ in passages_of(message, block))


def unproven_summary_warning(messages: Messages) -> str | None:
    """Return a warning about a summary without a receipt; None if there is none."""
    for index, message in enumerate(messages):
        only = message.blocks[0] if len(message.blocks) == 1 else None
        if not isinstance(only, Text) or message.role != "user" or only.author == "compaction":
            continue
        if placeholders.claimed_span(only.text) is not None:
            return (
                f"Message {index} looks like a summary of this server, but the archive has no "
                "receipt for it, so it counts as plain text and its pins and rules are not kept. "
                "If it is yours, state its rules again, or pass them as `pinned`."
            )
    return None


def _texts_of_user_and_results(messages: Messages) -> Iterator[str]:
    """Yield the texts that this library may have written: user texts, and texts of results."""
    for message in messages:
        for block in message.blocks:
            if isinstance(block, Text) and message.role == "user":
                yield block.text
            elif isinstance(block, ToolResult):
                yield from (part.text for part in block.content if isinstance(part, Text))


def _with_proven(message: Message, proven: ProvenTexts) -> Message:
    """Return a user message with the authors of proven texts and of labelled orphans."""
    if message.role != "user":
        return message
    blocks = tuple(_proven_block(block, proven) for block in message.blocks)
    return message if is_same(blocks, message.blocks) else replace(message, blocks=blocks)


def _proven_block(block: Block, proven: ProvenTexts) -> Block:
    if isinstance(block, Text):
        author = _proven_author(block.text, proven)
        return block if author is None else replace(block, author=author)
    if not isinstance(block, ToolResult) or not proven.output_ids:
        return block
    parts = tuple(_proven_part(part, proven) for part in block.content)
    return block if is_same(parts, block.content) else replace(block, content=parts)


def _proven_part(part: Part, proven: ProvenTexts) -> Part:
    if isinstance(part, Text) and _is_stored_placeholder(part.text, proven):
        return replace(part, author="compaction")
    return part


def _proven_author(text: str, proven: ProvenTexts) -> Author | None:
    """Return the author of a text in a user message; None if this library did not write it."""
    if placeholders.seems_synthetic(text):
        if not proven.hashes or placeholders.receipt_hash(text) not in proven.hashes:
            return None
        if placeholders.rules_kind(text):
            return "project"
        return "user" if placeholders.is_long_request(text) else "compaction"
    if _is_stored_placeholder(text, proven):
        return "compaction"
    is_orphan = text.startswith((placeholders.ORPHAN_RESULT, placeholders.ORPHAN_CALL))
    return "tool" if is_orphan else None


def _is_stored_placeholder(text: str, proven: ProvenTexts) -> bool:
    ids = placeholders.ids_in_placeholder(text) if proven.output_ids else ()
    return bool(ids) and proven.output_ids >= set(ids)


def _has_only_user_texts(message: Message) -> bool:
    return all(
        isinstance(block, Text) and author_of(message, block) == "user" for block in message.blocks
    )


def _ends_in_prompt(message: Message) -> bool:
    """Whether the last line of `message` looks like a shell prompt."""
    line = _text_at(message, -1)[-_HEAD_CHARS:].rstrip().rpartition("\n")[2]
    is_short = len(line) <= 60 and not any(map(str.isspace, line))
    return is_short and line.endswith(("$", "#", "%", ">"))


def _text_at(message: Message, number: int) -> str:
    block = message.blocks[number] if message.blocks else None
    return block.text if isinstance(block, Text) else ""


# Frames in which hosts put texts of the host, tools and sub-agents into user messages: Claude Code,
# Codex, Cline and its forks, loops without tool calls, documents in a prompt, and this library.
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
# First words of a host's own summary: of Claude Code and of Codex.
HOST_SUMMARY_HEADS = (
    "This session is being continued from a previous conversation",
    "Another language model started to solve this problem",
)
# First words of texts that a host writes as a whole.
_HOST_HEADS = (
    *HOST_SUMMARY_HEADS,
    "# AGENTS.md instructions for ",
    "Caveat: The messages below were generated by the user while running local commands.",
    "This is the Gemini CLI. We are setting up the context for our chat.",
    "Another Claude session sent a message:\n",
    "Base directory for this skill: ",
    placeholders.OFFLOADED,
)
# Claude Code's tags and notes around text that the user typed after a command.
_TYPED_TAG = re.compile(
    r"</?command-args>|^\[Request interrupted by user(?: for tool use)?\]$"
    r"|^Read the output file to retrieve the result: /\S+\.output$",
    re.M,
)
# Words of a host's remark next to a result, such as "Tool loaded." or "2 tools loaded: Read, Grep".
_REMARK_NOUNS = frozenset({"tool", "skill", "function", "schema", "command", "call", "result"})
_REMARK_VERBS = frozenset({
    "loaded", "available", "enabled", "ready", "executed", "completed", "finished", "returned",
})  # fmt: skip
# The name is looked up after the match, because trying 60 names at every bracket is slow.
_TAG = re.compile(r"<(/?)([a-z_-]{4,24}+)(?=[\s/>])", re.IGNORECASE)
_BY_ROLE: Mapping[Role, Author] = {"user": "user", "assistant": "agent", "system": "host"}


def _is_remark(text: str) -> bool:
    """Whether `text` is one short sentence of a host about a tool, next to its result."""
    head, _, names = text.strip().rstrip(".!").partition(": ")
    if len(text) > 300 or "\n" in text.strip() or "." in head:
        return False
    words = head.lower().removesuffix(" successfully").split()
    is_about_tool = any(word.removesuffix("s") in _REMARK_NOUNS for word in words[:-1])
    is_list = all(
        part.replace("-", "").replace(".", "").isalnum() for part in names.replace(",", "").split()
    )
    return is_about_tool and is_list and len(words) <= 8 and words[-1] in _REMARK_VERBS


def author_of(message: Message, block: Text) -> Author:
    """Return the author of `block` as a whole. `passages` separates the frames in a user's text."""
    return block.author or _BY_ROLE[message.role]


def passages(message: Message) -> list[tuple[Author, str]]:
    """Return the texts of `message` with their authors, in order, without tool results."""
    texts = [block for block in message.blocks if isinstance(block, Text)]
    return [passage for block in texts for passage in passages_of(message, block)]


def passages_of(message: Message, block: Text) -> list[tuple[Author, str]]:
    """Return the passages of one text of `message` with their authors, in order."""
    author = "host" if placeholders.is_labelled_system(message) else author_of(message, block)
    author = "host" if author == "project" else author  # the host passes on the project's rules
    if block.author == "user":
        lines = block.text.splitlines()
        lines = lines[2:-1] if placeholders.is_long_request(block.text) else lines
        return [("user", line) for line in lines]
    if author != "user":
        return [(author, block.text)]
    if placeholders.seems_synthetic(block.text) or block.text.startswith(_HOST_HEADS):
        return [("host", block.text)]
    return _split_by_frames(block.text)


def user_texts(message: Message) -> list[str]:
    """Return the texts that the user typed in `message`; empty if the user typed nothing."""
    if message.role != "user":
        return []
    return [text for author, text in passages(message) if author == "user"]


def user_text(message: Message) -> str:
    """Return the texts that the user typed in `message`, joined by newlines."""
    return "\n".join(user_texts(message))


def _split_by_frames(text: str) -> list[tuple[Author, str]]:
    """Return the passages of a user's text: the host's inside frames, the user's outside."""
    found: list[tuple[Author, str]] = []
    position = 0
    for start, stop in sorted(_frames_in(text)):
        if typed := _without_host_tags(text[position:start]):
            found.append(("user", typed))
        if stop > position:
            found.append(("host", text[max(start, position) : stop]))
        position = max(position, stop)
    if typed := _without_host_tags(text[position:]):
        found.append(("user", typed))
    return found


def _without_host_tags(text: str) -> str:
    """Return `text` without the host's tags and notes; empty if only white space remains."""
    rest = _TYPED_TAG.sub("", text)
    return rest if rest.strip() else ""


def _frames_in(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each frame. Frames may overlap.

    A frame extends from the first tag of its name to the last, because its content may contain
    forged end tags. A frame without an end that starts a line extends to the end of the text.
    """
    if "<" not in text:
        return []
    first_start: dict[str, int] = {}
    last_line_start: dict[str, int] = {}
    last_end: dict[str, int] = {}
    previous = 0  # each tag reads its line only from the previous tag, to stay linear
    for tag in _TAG.finditer(text):
        name = tag[2].lower()
        if name not in _FRAMES:
            continue
        before = text[previous : tag.start()].rpartition("\n")[2]
        previous = tag.start()
        if tag[1]:
            end = text.find(">", tag.end())
            last_end[name] = len(text) if end < 0 else end + 1
            continue
        first_start.setdefault(name, tag.start())
        if not before.strip():
            last_line_start[name] = tag.start()
    frames: list[tuple[int, int]] = []
    for name, start in first_start.items():
        stop = last_end.get(name, 0)
        if last_line_start.get(name, -1) >= stop:
            frames.append((start if stop > start else last_line_start[name], len(text)))
        elif stop > start:
            frames.append((start, stop))
    return frames


def newest_results(messages: Messages) -> range:
    """Return the indices of the newest messages with results: the results of the newest calls.

    Texts of the host between and after the results, such as reminders, are included.
    """
    start = stop = len(messages)
    index = len(messages)
    while index and (messages[index - 1].role != "assistant" or _is_filler(messages[index - 1])):
        index -= 1
        if messages[index].role == "user" and tool_results(messages[index]):
            start, stop = index, (index + 1 if start == len(messages) else stop)
        elif user_texts(messages[index]):
            break
    return range(start, stop)


def _is_filler(message: Message) -> bool:
    """Whether a repair inserted `message` between two messages of the same role."""
    return len(message.blocks) == 1 and text_of(message.blocks) == placeholders.NO_CONTENT

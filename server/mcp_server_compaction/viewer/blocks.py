"""Archived messages as blocks of a page: roles, texts, calls and results."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from context_compaction import (
    FORMATS,
    ArchivedMessage,
    Block,
    Document,
    Image,
    InvalidMessageError,
    JsonObject,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    claimed_span,
    classify,
    ids_in_placeholder,
    is_object,
    role_of,
    seems_synthetic,
    tool_calls,
)
from markupsafe import Markup

from mcp_server_compaction.reading.plain_text import block_text
from mcp_server_compaction.viewer import markup

# Blocks of one message that a page shows; each of the others has a page of its own.
MOST_BLOCKS = 200
# What one click unfolds; the page of the block has everything, in parts.
UNFOLD_LINES = 1_500
UNFOLD_CHARS = 120_000
_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_MADE = (
    ("<context_summary ", "Summary"),
    ("<turn_context ", "Checkpoint of the running turn"),
    ("<restored_files>", "Files put back"),
    ("<changed_files>", "Files that changed"),
    ("<open_todos>", "Open todos"),
    ("[Messages removed", "Messages removed"),
    ("[Finished sub-task", "A finished sub-task"),
)
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*\Z")


@dataclass(frozen=True, slots=True)
class BlockView:
    """One block as a page shows it.

    Attributes:
        number: Its place in the message, from 0.
        kind: text, thinking, call, result, image, document, other, or made (a text of ours).
        label: Its heading; the tool of a call or result.
        headline: One line that describes it.
        body: Its HTML, the beginning of one that is long.
        size_chars: Length of its text.
        line_count: Lines of its text.
        is_cut: Whether `body` is only the beginning.
        is_error: Whether a tool failed.
    """

    number: int
    kind: str
    label: str
    headline: str
    body: Markup
    size_chars: int
    line_count: int
    is_cut: bool = False
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class MessageView:
    """One message as a page shows it.

    Attributes:
        seq: Its number; -1 for one of a context that is not archived as such.
        role: user, assistant, tool or system.
        timestamp_seconds: Its time, in Unix time; None where that is not known.
        blocks: Its blocks that are shown.
        left_out: How many of its blocks are not shown.
    """

    seq: int
    role: str
    timestamp_seconds: float | None
    blocks: tuple[BlockView, ...]
    left_out: int = 0


@dataclass(slots=True)
class Reading:
    """How messages are shown, and what was learnt from those before.

    Attributes:
        session_id: For the links in summaries.
        message_count: The session's messages: greater numbers are no links.
        calls: By call id, the calls that results answer.
        max_lines: So many lines of a block are shown at once ...
        max_chars: ... and so many characters; the rest is a click away.
        is_exported: Whether it is in a file of its own, where links lead nowhere.
    """

    session_id: str = ""
    message_count: int = 0
    calls: dict[str, ToolCall] = field(default_factory=dict[str, ToolCall])
    max_lines: int = 24
    max_chars: int = 3_000
    is_exported: bool = False


def parsed(raw: JsonObject, format: str) -> Message:
    """The message; one whose format cannot be read (another version stored it) is one block."""
    try:
        return FORMATS[format].parse_message(raw, 0)
    except (KeyError, InvalidMessageError):
        return Message("user", (Opaque("message", raw),))


def message_views(messages: Sequence[ArchivedMessage], reading: Reading) -> list[MessageView]:
    """Archived messages, in order."""
    return [
        message_view(m.raw, m.format, reading, seq=m.seq, timestamp_seconds=m.timestamp_seconds)
        for m in messages
    ]


def message_view(
    raw: JsonObject,
    format: str,
    reading: Reading,
    *,
    seq: int,
    timestamp_seconds: float | None = None,
) -> MessageView:
    """One message; `reading` learns its calls."""
    message = parsed(raw, format)
    reading.calls |= {call.call_id: call for call in tool_calls(message)}
    shown = message.blocks if reading.is_exported else message.blocks[:MOST_BLOCKS]
    views = (_view(at, block, message, reading) for at, block in enumerate(shown))
    blocks = tuple(view for view in views if view is not None)
    left_out = len(message.blocks) - len(shown)
    return MessageView(seq, role_of(message), timestamp_seconds, blocks, left_out)


def block_at(raw: JsonObject, format: str, number: int) -> Block | None:
    """A block of a message; None where there is none of that number."""
    blocks = parsed(raw, format).blocks
    return blocks[number] if 0 <= number < len(blocks) else None


def path_of(block: Block, calls: Mapping[str, ToolCall]) -> str:
    """The file that a result shows, where its call names one; its ending gives the language."""
    call = calls.get(block.call_id) if isinstance(block, ToolResult) else None
    use = classify(call) if call is not None else None
    return use.path or "" if use is not None and use.kind == "read" else ""


def _view(at: int, block: Block, message: Message, reading: Reading) -> BlockView | None:
    text = block_text(block)
    shown, is_cut = _cut(text, reading)
    match block:
        case Text() if seems_synthetic(text) or claimed_span(text) is not None:
            body = markup.plain(shown)
            if not reading.is_exported:
                body = markup.summary(shown, reading.session_id, reading.message_count)
            return _block(at, "made", _made_label(text), text, body, is_cut)
        case Text():
            # What the user typed keeps its lines; models write Markdown.
            body = markup.prose(shown) if message.role == "assistant" else markup.plain(shown)
            return _block(at, "text", "", text, body, is_cut) if text else None
        case Thinking():
            body = markup.prose(shown)
            return _block(at, "thinking", "Thinking", text, body, is_cut) if text else None
        case ToolCall():
            use = classify(block)
            view = _block(at, "call", block.name, text, arguments_html(block, reading), is_cut)
            headline = use.command or use.path or _first_argument(block.arguments)
            return replace(view, headline=_line(headline))
        case ToolResult():
            return _result(at, block, text, reading)
        case Image():
            return _block(at, "image", block.media_type or "image", "", picture(block))
        case Document():
            label = block.media_type or "document"
            return _block(at, "document", label, text, markup.plain(shown), is_cut)
        case Opaque():
            return _block(at, "other", block.kind, text, markup.code(shown), is_cut)


def _block(
    at: int, kind: str, label: str, text: str, body: Markup, is_cut: bool = False
) -> BlockView:
    line_count = text.count("\n") + 1 if text else 0
    return BlockView(at, kind, label, _line(text), body, len(text), line_count, is_cut)


def _made_label(text: str) -> str:
    """The label of a text that a compaction inserted."""
    return next((label for start, label in _MADE if text.startswith(start)), "Left by a compaction")


def arguments_html(call: ToolCall, reading: Reading) -> Markup:
    """The arguments of a call: a command as shell, an edit as a diff, a file as its language."""
    arguments: object = call.arguments
    if not is_object(arguments):
        return markup.code(_cut(str(arguments), reading)[0])
    use = classify(call)
    rest: list[Markup] = []
    for name, value in arguments.items():
        new = arguments.get("new" + name.removeprefix("old")) if name.startswith("old") else None
        old = arguments.get("old" + name.removeprefix("new")) if name.startswith("new") else None
        text = value if isinstance(value, str) else markup.json_text(value)
        shown = _cut(text, reading)[0]
        if isinstance(value, str) and isinstance(new, str):
            rest.append(markup.diff(shown, _cut(new, reading)[0]))
        elif isinstance(value, str) and isinstance(old, str):
            continue  # a part of the diff
        elif value == use.command:
            rest.append(markup.code(shown, "bash"))
        else:
            language = "" if isinstance(value, str) else "json"
            body = _argument(shown, language, use.path or "")
            row = Markup('<div class="argument"><span class="name">{}</span> {}</div>')
            rest.append(row.format(name, body))
    return Markup("").join(rest)


def _argument(text: str, language: str, path: str) -> Markup:
    if "\n" not in text:
        return Markup("<code>{}</code>").format(text)
    if text.startswith(("*** Begin Patch", "--- ", "diff --git ")):
        return markup.patch(text.split("\n"))
    return markup.code(text, language, path)


def _result(at: int, result: ToolResult, text: str, reading: Reading) -> BlockView:
    call = reading.calls.get(result.call_id)
    label = result.name or (call.name if call is not None else "result")
    path = path_of(result, reading.calls)
    bodies: list[Markup] = []
    is_cut = False
    for part in result.content:
        if isinstance(part, Image):
            bodies.append(picture(part))
            continue
        shown, was_cut = _cut(block_text(part), reading)
        is_cut |= was_cut
        if ids_in_placeholder(shown) and not reading.is_exported:
            linked = markup.linked(shown, reading.session_id, 0)
            bodies.append(Markup('<div class="plain">{}</div>').format(linked))
        else:
            bodies.append(markup.output(shown, path))
    view = _block(at, "result", label, text, Markup("").join(bodies), is_cut)
    return replace(view, is_error=result.is_error)


def picture(image: Image) -> Markup:
    """A picture that the transcript itself contains; one stored elsewhere is named only."""
    data = image.data or ""
    is_known = image.media_type in _PICTURES and len(data) <= 3_000_000
    if data and is_known and _BASE64.match(data):
        return Markup('<img alt="Picture of the transcript" src="data:{};base64,{}">').format(
            image.media_type, data
        )
    return Markup('<p class="note">{} {}</p>').format(
        image.media_type or "image", image.url or f"{len(data):,} characters of base64"
    )


def _cut(text: str, reading: Reading) -> tuple[str, bool]:
    """The beginning of `text` that is shown, and whether that is not all of it."""
    if len(text) <= reading.max_chars and text.count("\n") < reading.max_lines:
        return text, False
    return "\n".join(text[: reading.max_chars].split("\n")[: reading.max_lines]), True


def _first_argument(arguments: object) -> str:
    values = arguments.values() if is_object(arguments) else [arguments]
    return next((value for value in values if isinstance(value, str)), "")


def _line(text: str) -> str:
    return shorten(" ".join(text[:640].split()), 160)


def shorten(line: str, max_chars: int) -> str:
    """The line, cut and marked so where it is longer."""
    return line if len(line) <= max_chars else f"{line[:max_chars]}…"

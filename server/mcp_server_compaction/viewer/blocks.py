"""Archived messages as the pages show them: roles, texts, tool calls and results."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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

from mcp_server_compaction.reading.plain_text import block_text, diff_lines, edited_texts
from mcp_server_compaction.viewer import markup

# Blocks of a message that a page shows; each further block has its own page.
MAX_BLOCKS = 200
# Limits of a block that was unfolded; the page of the block shows all of it in parts.
UNFOLDED_LINES = 1_500
UNFOLDED_CHARS = 120_000
_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
# Labels of texts that a compaction inserted, by how the text starts.
_INSERTED_LABELS = (
    ("<context_summary ", "Summary"),
    ("<turn_context ", "Checkpoint of the current turn"),
    ("<restored_files>", "Restored files"),
    ("<changed_files>", "Changed files"),
    ("<open_todos>", "Open todos"),
    ("[Messages removed", "Messages removed"),
    ("[Finished sub-task", "Finished sub-task"),
)
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*\Z")


@dataclass(frozen=True, slots=True)
class BlockView:
    """One block of a message as a page shows it.

    Attributes:
        number: Index of the block in the message.
        kind: text, thinking, call, result, image, document, other, or inserted (by a compaction).
        label: Heading, for example the name of the tool.
        headline: One line that describes the block.
        body: HTML of the block, or of its beginning.
        size_chars: Length of the text in characters.
        line_count: Number of lines of the text.
        is_cut: Whether `body` is only the beginning.
        is_error: Whether the block is the result of a failed tool call.
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
        seq: Number of the archived message, or -1 if it is not archived as such.
        role: user, assistant, tool or system.
        timestamp_seconds: Unix time, or None if unknown.
        blocks: The blocks that are shown.
        hidden_count: Number of blocks that are not shown.
    """

    seq: int
    role: str
    timestamp_seconds: float | None
    blocks: tuple[BlockView, ...]
    hidden_count: int = 0


@dataclass(slots=True)
class ViewContext:
    """Limits for showing messages, and the tool calls of the messages shown so far.

    Attributes:
        session_id: Session that links in summaries lead to.
        message_count: Number of messages of the session; greater numbers get no link.
        calls: Tool calls by call ID.
        max_lines: Number of lines of a block to show.
        max_chars: Number of characters of a block to show.
        is_exported: Whether the messages are written to a file, in which links lead nowhere.
    """

    session_id: str = ""
    message_count: int = 0
    calls: dict[str, ToolCall] = field(default_factory=dict[str, ToolCall])
    max_lines: int = 24
    max_chars: int = 3_000
    is_exported: bool = False

    def beginning(self, text: str) -> tuple[str, bool]:
        """Return the part of a text to show, and whether it is only the beginning."""
        if len(text) <= self.max_chars and text.count("\n") < self.max_lines:
            return text, False
        return "\n".join(text[: self.max_chars].split("\n")[: self.max_lines]), True

    def add_calls(self, message: Message) -> None:
        """Remember the tool calls of a message for the results that follow."""
        self.calls |= {call.call_id: call for call in tool_calls(message)}


def parsed(raw: JsonObject, format: str) -> Message:
    """Parse a message. A message that cannot be parsed becomes one opaque block."""
    try:
        return FORMATS[format].parse_message(raw, 0)
    except (KeyError, InvalidMessageError):
        return Message("user", (Opaque("message", raw),))


def message_views(messages: Sequence[ArchivedMessage], context: ViewContext) -> list[MessageView]:
    """Return the views of archived messages, in order."""
    return [
        message_view(m.raw, m.format, context, seq=m.seq, seconds=m.timestamp_seconds)
        for m in messages
    ]


def message_view(
    raw: JsonObject, format: str, context: ViewContext, *, seq: int, seconds: float | None = None
) -> MessageView:
    """Return the view of one message, and add its tool calls to `context`."""
    message = parsed(raw, format)
    context.add_calls(message)
    shown = message.blocks if context.is_exported else message.blocks[:MAX_BLOCKS]
    views = (_block_view(number, block, message, context) for number, block in enumerate(shown))
    blocks = tuple(view for view in views if view is not None)
    hidden_count = len(message.blocks) - len(shown)
    return MessageView(seq, role_of(message), seconds, blocks, hidden_count)


def path_of(block: Block, calls: Mapping[str, ToolCall]) -> str:
    """Return the path of the file that a tool result shows, or "" if unknown."""
    call = calls.get(block.call_id) if isinstance(block, ToolResult) else None
    use = classify(call) if call is not None else None
    return use.path or "" if use is not None and use.kind == "read" else ""


def _block_view(
    number: int, block: Block, message: Message, context: ViewContext
) -> BlockView | None:
    """Return the view of a block, or None for an empty text."""
    text = "" if isinstance(block, Image) else block_text(block)
    if not text and isinstance(block, Text | Thinking):
        return None
    shown, is_cut = context.beginning(text)
    if isinstance(block, ToolResult):
        kind, label = "result", _tool_name(block, context)
        body, is_cut = _result_html(block, context)
    else:
        kind, label, body = _content(block, text, shown, message.role, context)
    return BlockView(
        number,
        kind,
        label,
        _call_headline(block) if isinstance(block, ToolCall) else single_line(text, 160),
        body,
        len(text),
        text.count("\n") + 1 if text else 0,
        is_cut,
        isinstance(block, ToolResult) and block.is_error,
    )


def _content(
    block: Text | Thinking | ToolCall | Image | Document | Opaque,
    text: str,
    shown: str,
    role: str,
    context: ViewContext,
) -> tuple[str, str, Markup]:
    """Return the kind, the label and the HTML of a block that is not a tool result."""
    match block:
        case Text() if seems_synthetic(text) or claimed_span(text) is not None:
            body = markup.plain(shown)
            if not context.is_exported:
                body = markup.summary(shown, context.session_id, context.message_count)
            return "inserted", _inserted_label(text), body
        case Text():
            # Models write Markdown; the user's text keeps its line breaks.
            return (
                "text",
                "",
                markup.markdown(shown) if role == "assistant" else markup.plain(shown),
            )
        case Thinking():
            return "thinking", "Thinking", markup.markdown(shown)
        case ToolCall():
            return "call", block.name, _arguments_html(block, context)
        case Image():
            return "image", block.media_type or "image", _image_html(block)
        case Document():
            return "document", block.media_type or "document", markup.plain(shown)
        case Opaque():
            return "other", block.kind, markup.code(shown)


def _inserted_label(text: str) -> str:
    labels = (label for start, label in _INSERTED_LABELS if text.startswith(start))
    return next(labels, "Inserted by a compaction")


def _tool_name(result: ToolResult, context: ViewContext) -> str:
    call = context.calls.get(result.call_id)
    return result.name or (call.name if call is not None else "result")


def _arguments_html(call: ToolCall, context: ViewContext) -> Markup:
    """Render the arguments of a call: a command as shell code, an edit as a diff."""
    arguments: object = call.arguments
    if not is_object(arguments):
        return markup.code(context.beginning(str(arguments))[0])
    use = classify(call)
    edits, rows = edited_texts(arguments), list[Markup]()
    others = {name: arguments[name] for name in arguments if name not in edits.values()}
    for name, value in others.items():
        text = value if isinstance(value, str) else markup.json_text(value)
        shown = context.beginning(text)[0]
        if name in edits:
            new, _ = context.beginning(arguments[edits[name]])
            rows.append(markup.patch([*diff_lines(shown, new)]))
        elif value == use.command:
            rows.append(markup.code(shown, "bash"))
        else:
            body = Markup("<code>{}</code>").format(shown)
            if "\n" in shown:
                body = markup.output(shown, use.path or "")
            row = Markup('<div class="argument"><span class="name">{}</span> {}</div>')
            rows.append(row.format(name, body))
    return Markup("").join(rows)


def _result_html(result: ToolResult, context: ViewContext) -> tuple[Markup, bool]:
    """Render a tool result, and return whether only its beginning is shown."""
    path = path_of(result, context.calls)
    bodies: list[Markup] = []
    is_cut = False
    for block in result.content:
        if isinstance(block, Image):
            bodies.append(_image_html(block))
            continue
        shown, is_block_cut = context.beginning(block_text(block))
        is_cut |= is_block_cut
        if ids_in_placeholder(shown) and not context.is_exported:
            links = markup.linked(shown, context.session_id)
            bodies.append(Markup('<div class="plain">{}</div>').format(links))
        else:
            bodies.append(markup.output(shown, path))
    return Markup("").join(bodies), is_cut


def _image_html(image: Image) -> Markup:
    """Render an image if the transcript contains its data, otherwise its address or size."""
    data = image.data or ""
    is_shown = image.media_type in _IMAGE_TYPES and 0 < len(data) <= 3_000_000
    if is_shown and _BASE64.match(data):
        return Markup('<img alt="Image in the transcript" src="data:{};base64,{}">').format(
            image.media_type, data
        )
    return Markup('<p class="note">{} {}</p>').format(
        image.media_type or "image", image.url or f"{len(data):,} characters of base64"
    )


def _call_headline(call: ToolCall) -> str:
    use = classify(call)
    values = call.arguments.values() if is_object(call.arguments) else [call.arguments]
    first_text = next((value for value in values if isinstance(value, str)), "")
    return single_line(use.command or use.path or first_text, 160)


def single_line(text: str, max_chars: int) -> str:
    """Return the beginning of a text as one line, without repeated blanks."""
    return shorten(" ".join(text[: 4 * max_chars].split()), max_chars)


def shorten(line: str, max_chars: int) -> str:
    """Cut a line that is too long, and mark the cut with an ellipsis."""
    return line if len(line) <= max_chars else f"{line[:max_chars]}…"

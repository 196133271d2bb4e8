"""Collect the items of a conversation: its texts, calls, results and files, cut into pieces.

One walk over the messages collects them, in time linear in the text. A newer version of a plan, a
page, a report or a file replaces the older one.
"""

import json
import logging
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from context_compaction.activity.calls import (
    ToolUse,
    brings_report,
    classify,
    is_bookkeeping,
    is_question,
    words_in_name,
)
from context_compaction.activity.files import holds_secrets, without_secrets
from context_compaction.activity.outcome import command_output, is_failed, refusal_comment
from context_compaction.messages import placeholders
from context_compaction.messages.model import (
    Document,
    Image,
    Message,
    Messages,
    Opaque,
    Text,
    ToolCall,
    ToolResult,
    is_object,
    is_rules,
    is_synthetic_result,
    result_text,
    strings_in,
    text_of,
)
from context_compaction.messages.speakers import HOST_SUMMARY_HEADS, passages_of
from context_compaction.messages.tool_pairs import with_unique_call_ids
from context_compaction.summarizers.extractive.items import (
    GROUP_CHARS,
    LABEL_CHARS,
    FileItem,
    Item,
    Kind,
    ends_first,
    line_groups,
    paragraphs,
)
from context_compaction.summarizers.instructions.find import (
    BINDING_RANK,
    CERTAIN_RANK,
    find_instructions,
)

_logger = logging.getLogger(__name__)

# Tools whose results are texts to read, not outcomes.
_READING_KINDS = ("read", "search", "list")
# Kinds of the entries of an earlier summary, by the first word of their label.
_KINDS_BY_LABEL: Mapping[str, Kind] = {
    "called": "call", "result": "result", "tool": "result", "host": "host",
}  # fmt: skip
_DOCUMENT_NAMES = (".md", ".txt", ".rst")
_HIDDEN = "[content not shown, because it may contain secrets]"
_COMMIT = re.compile(r"^\[(\S{1,100})(?: \([^)\n]*\))? ([0-9a-f]{7,40})\] ([^\n]+)$", re.MULTILINE)
_ERROR = re.compile(r"^E  |\bassert\w*\b|\b\w*(?:Error|Exception)\b|\bFAILED\b|\bpanic\b", re.M)
# How Claude Code starts the text of a skill, in a message after the call.
_SKILL_START = "Base directory for this skill:"


def collect(
    messages: Messages,
    numbers: Sequence[int | None],
    *,
    files: Iterable[FileItem] = (),
    earlier: Mapping[int, str] | None = None,
    kinds: Mapping[str, str] | None = None,
    newest_at: int | None = None,
) -> list[Item]:
    """Return the items of `messages`, oldest first, and the items of the files.

    Args:
        messages: The conversation, in its original words if they are known.
        numbers: The number of each message in the transcript.
        files: The last known texts of the files that the agent works on.
        earlier: The labels of messages that are entries of an earlier summary, by position.
        kinds: The kinds of tools that the caller names, by tool name.
        newest_at: Position of the first result that the model has not seen.
    """
    files = list(files)
    walk = _Walk(with_unique_call_ids(messages), numbers, files, kinds or {}, newest_at)
    walk.add_messages(earlier or {})
    walk.add_rules()
    walk.add_actions()
    walk.add_files(files)
    return [item for item in walk.items if item.pieces]


@dataclass(slots=True)
class _Turn:
    """Actions of the agent between two user messages, each as an ordered set of names."""

    at: int
    changed: dict[str, None] = field(default_factory=dict[str, None])
    committed: dict[str, None] = field(default_factory=dict[str, None])
    fixed: dict[str, None] = field(default_factory=dict[str, None])


class _Walk:
    """One walk through the messages, which collects the items."""

    def __init__(
        self,
        messages: Messages,
        numbers: Sequence[int | None],
        files: Iterable[FileItem],
        kinds: Mapping[str, str],
        newest_at: int | None,
    ) -> None:
        self.items: list[Item] = []
        self._messages, self._numbers, self._kinds = messages, numbers, kinds
        self._files = {name: file for file in files if file.text for name in file.names}
        self._newest_at = len(messages) + 1 if newest_at is None else newest_at
        self._calls: dict[str, tuple[ToolCall, ToolUse]] = {}
        self._newest_versions: dict[Hashable, Item] = {}
        self._failed_commands: dict[str, Item] = {}
        self._turns = [_Turn(0)]
        self._closing: Item | None = None

    def _add(
        self,
        at: int,
        kind: Kind,
        label: str,
        pieces: Sequence[str],
        *,
        order: Sequence[int] | None = None,
        block: int = -1,
    ) -> Item:
        number = self._numbers[at] if at < len(self._numbers) else None
        item = Item(at, kind, label, pieces, order or range(len(pieces)), block, number)
        item.is_unread = at >= self._newest_at - 1
        self.items.append(item)
        return item

    def _replace_older(self, key: Hashable, item: Item) -> None:
        """Make `item` the newest version of what `key` identifies."""
        if key in self._newest_versions:
            self._newest_versions[key].kind = "replaced"
        self._newest_versions[key] = item

    def add_messages(self, earlier: Mapping[int, str]) -> None:
        """Add the items of all messages. `earlier` has labels of entries of an earlier summary."""
        for at, message in enumerate(self._messages):
            if label := earlier.get(at):
                kind = _KINDS_BY_LABEL.get(label.partition(" ")[0], "remark")
                self._add(at, kind, label, paragraphs(text_of(message.blocks)))
            elif not (placeholders.is_synthetic(message) or placeholders.is_system(message)):
                self._add_texts(at, message)
                self._add_blocks(at, message)

    def _add_texts(self, at: int, message: Message) -> None:
        texts: dict[str, list[str]] = {}
        for number, block in enumerate(message.blocks):
            for author, text in passages_of(message, block) if isinstance(block, Text) else ():
                if author in ("tool", "host") and self._add_apart(at, number, author, text):
                    continue
                if author != "compaction" and text.strip():
                    texts.setdefault(author, []).append(text.strip())
        if typed := "\n".join(texts.pop("user", ())):
            self._turns.append(_Turn(at))
            self._closing = None
            self._add(at, "user", "user", paragraphs(typed))
        if agent_texts := texts.pop("agent", ()):
            if self._closing is not None:
                self._closing.kind = "remark"
            self._closing = self._add(at, "closing", "agent", paragraphs("\n\n".join(agent_texts)))
            self._replace_older(("text", *self._closing.pieces), self._closing)
        # Project rules stay a message of their own.
        kind: Kind = "replaced" if any(map(is_rules, message.blocks)) else "host"
        for text in map("\n\n".join, texts.values()):
            item = self._add(at, kind, "host", paragraphs(text))
            if text.startswith(_SKILL_START):
                item.kind = "attached"
                self._replace_older(("skill", *item.pieces[:1]), item)

    def _add_apart(self, at: int, number: int, author: str, text: str) -> bool:
        """Add a text that is an item of its own: of a tool, or a host's summary. Else False."""
        if author == "tool" and text.strip():
            pieces = line_groups(text)
            order = errors_first(pieces)
            self._add(at, self._result_kind(at), "tool", pieces, order=order, block=number)
        elif author == "host" and text.startswith(HOST_SUMMARY_HEADS):
            item = self._add(at, "document", "host's summary", paragraphs(text))
            self._replace_older(("host's summary",), item)
        else:
            return False
        return True

    def _add_blocks(self, at: int, message: Message) -> None:
        for number, block in enumerate(message.blocks):
            match block:
                case ToolCall() | ToolResult():
                    self._add_call_or_result(at, number, block)
                case Image() | Document():
                    self._add(at, "media", message.role, [_name_of(block)], block=number)
                case Opaque():
                    self._add(at, "host", message.role, [_name_of(block)], block=number)
                case _:
                    pass

    def _add_call_or_result(self, at: int, number: int, block: ToolCall | ToolResult) -> None:
        try:
            if isinstance(block, ToolCall):
                self._add_call(at, number, block)
            else:
                self._add_result(at, number, block)
        except Exception:  # no content of a call or result may stop a compaction
            _logger.exception("Cannot read a call or result of message %d.", at)
            is_call = isinstance(block, ToolCall)
            text = block.name if isinstance(block, ToolCall) else result_text(block)
            label = "called" if is_call else "result of tool"
            self._add(at, "call" if is_call else "result", label, [text], block=number)

    def _result_kind(self, at: int) -> Kind:
        return "newest" if at >= self._newest_at else "result"

    def _add_call(self, at: int, number: int, call: ToolCall) -> None:
        use = classify(call, self._kinds)
        kind = _kind_of_call(call, use)
        file = self._files.get(use.path or "") if use.kind in ("write", "edit") else None
        if at >= self._newest_at - 1:
            file = None
        if kind == "plan":
            texts = [text for text in strings_in(call.arguments) if text.strip()]
            pieces = paragraphs("\n\n".join([call.name, *texts]))
        else:
            pieces = _pieces_of_call(call, use, is_in_file=file is not None)
        item = self._add(at, kind, "called", pieces, block=number)
        item.in_file = file.path if file else ""
        self._calls[call.call_id] = call, use
        if _keeps_plan(call):
            self._replace_older(("plan", call.name), item)

    def _add_result(self, at: int, number: int, result: ToolResult) -> None:
        call, use = self._calls.get(result.call_id, (None, ToolUse("other")))
        name = call.name if call else result.name or "tool"
        label = f"result of {name} {use.path or use.command or ''}".strip()
        label = label.partition("\n")[0][:LABEL_CHARS]
        text, comment = result_text(result), refusal_comment(result)
        media = [_name_of(part) for part in result.content if isinstance(part, Image | Document)]
        if media:
            self._add(at, "media", label, list(dict.fromkeys(media)))
        if is_synthetic_result(result):
            self._add(at, "replaced", label, [text], block=number)
        elif comment is not None:
            # The label names the tool, because a page or a command could print these words.
            label = "tool, on a refusal by the user"
            self._add(at, "user", label, [comment or "[refused without a comment]"], block=number)
        elif is_question(name):
            self._add(at, "user", "user answered", paragraphs(text), block=number)
        elif call is not None and "skill" in words_in_name(name) and not is_failed(result):
            item = self._add(at, "attached", label, paragraphs(text), block=number)
            self._replace_older((name, _as_json(call.arguments)), item)
        else:
            if is_report := brings_report(name):
                item = self._add(at, "result", label, paragraphs(text), block=number)
            else:
                item = self._add_output(at, number, result, use, label)
            if call is not None and use.kind != "edit" and not is_report:
                arguments = "" if use.path or use.command else _as_json(call.arguments)
                self._replace_older((name, use.path, use.command, use.range, arguments), item)

    def _add_output(
        self, at: int, number: int, result: ToolResult, use: ToolUse, label: str
    ) -> Item:
        """Add the item of a tool's output, and record its effects in the turn."""
        text = result_text(result)
        if placeholders.is_placeholder(result):
            text = placeholders.preview_in(text)
        if use.path and text:
            text = without_secrets(use.path, text) or _HIDDEN
        if use.kind == "execute":
            text, _ = command_output(text)
        pieces = line_groups(text)
        order = ends_first(pieces) if use.kind in _READING_KINDS else errors_first(pieces)
        item = self._add(at, self._result_kind(at), label, pieces, order=order, block=number)
        self._note_outcome(use, text, item, has_failed=bool(is_failed(result)))
        return item

    def _note_outcome(self, use: ToolUse, text: str, item: Item, *, has_failed: bool) -> None:
        turn = self._turns[-1]
        if use.kind == "execute" and use.command:
            for branch, commit, subject in _COMMIT.findall(text):
                turn.committed[f"{commit} on {branch}: {subject}"] = None
            failure = self._failed_commands.pop(use.command, None)
            if has_failed:
                self._failed_commands[use.command] = item
            elif failure is not None:
                turn.fixed[use.command.partition("\n")[0][:LABEL_CHARS]] = None
        if has_failed or not use.path:
            return
        if use.kind in ("write", "edit"):
            turn.changed["/".join(use.path.split("/")[-2:])] = None
        elif use.kind == "read" and use.path in self._files and item.kind == "result":
            item.kind, item.in_file = "replaced", self._files[use.path].path

    def add_rules(self) -> None:
        """Add the user's rules, and mark the sentences that later ones replace."""
        found = find_instructions(self._messages)
        user_items = {item.at: item for item in self.items if item.label == "user"}
        for sentence in found.candidates:
            marked = f"{found.mark_of(sentence.text, self._numbers)}{sentence.text}"
            if sentence.text not in found.replaced:
                if sentence.rank >= BINDING_RANK:
                    kind: Kind = "rule" if sentence.rank >= CERTAIN_RANK else "preference"
                    self._add(sentence.turn, kind, "user", [marked])
            elif item := user_items.get(sentence.turn):
                item.pieces = [
                    piece.replace(marked, sentence.text).replace(sentence.text, marked)
                    for piece in item.pieces
                ]

    def add_actions(self) -> None:
        """Add one line of work for each turn, and mark the newest failure that nothing fixed."""
        for item in [*self._failed_commands.values()][-1:]:
            if item.kind == "result":
                item.kind = "failure"
        for turn in self._turns:
            actions = {
                "changed": turn.changed,
                "committed": turn.committed,
                "failed, then passed": turn.fixed,
            }
            texts = [f"{verb} {', '.join(names)}" for verb, names in actions.items() if names]
            if texts:
                self._add(turn.at, "action", "done in this turn", ["; ".join(texts)])

    def add_files(self, files: Iterable[FileItem]) -> None:
        """Add an item for each file with a known text. Pieces near its last edit come first."""
        for file in files:
            if not file.text.strip():
                continue
            pieces = [file.text] if len(file.text) < GROUP_CHARS else line_groups(file.text)
            edited, offset = 0, 0
            for number, piece in enumerate(pieces):
                if offset <= file.focus:
                    edited = number
                offset += len(piece) + 1
            order = sorted(range(len(pieces)), key=lambda number: abs(number - edited))
            is_document = file.is_written and file.path.endswith(_DOCUMENT_NAMES)
            kind: Kind = "document" if is_document else "file"
            item = self._add(file.at, kind, file.path, pieces, order=order, block=-2)
            item.path, item.note = file.path, file.note


def errors_first(pieces: Sequence[str]) -> list[int]:
    """Return the indices of the last piece with an error and the last success, then both ends."""
    errors = [index for index, piece in enumerate(pieces) if _ERROR.search(piece)]
    successes = [index for index, piece in enumerate(pieces) if "success" in piece.lower()]
    ends = ends_first(pieces)
    return list(dict.fromkeys((*(errors[-1:] or ends[:1]), *successes[-1:], *ends)))


def _keeps_plan(call: ToolCall) -> bool:
    return is_bookkeeping(call.name) and "skill" not in words_in_name(call.name)


def _kind_of_call(call: ToolCall, use: ToolUse) -> Kind:
    if _keeps_plan(call):
        return "plan"
    if use.kind == "other" and not brings_report(call.name):
        # A call whose arguments have fewer words is a click or a search.
        words = (sum(map(str.isalpha, text.split())) for text in strings_in(call.arguments))
        if any(count > 4 for count in words):
            return "plan"
    return "call"


def _pieces_of_call(call: ToolCall, use: ToolUse, *, is_in_file: bool) -> list[str]:
    """Return the pieces of a call. If a file's item has its text, only the path is shown."""
    if use.kind in ("write", "edit") and use.path:
        head = f"{call.name} {use.path}"
        if is_in_file or holds_secrets(use.path):
            return [head]
        texts = [text for text in strings_in(call.arguments) if text != use.path and text.strip()]
        return [head, *line_groups(without_secrets(use.path, "\n".join(texts)))]
    if use.command:
        return line_groups(f"{call.name}: {use.command}")
    arguments: object = call.arguments
    if is_object(arguments) and len(arguments) == 1:
        [arguments] = arguments.values()
    text = arguments if isinstance(arguments, str) else _as_json(arguments)
    return line_groups(f"{call.name}: {text}")


def _as_json(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _name_of(block: Image | Document | Opaque) -> str:
    if isinstance(block, Opaque):
        return f"[block of type {block.kind[:LABEL_CHARS]}]"
    media = "image" if isinstance(block, Image) else "document"
    return f"[{media}, {block.media_type[:LABEL_CHARS]}]"

"""The items of a conversation: everything that was said or done, each with its text in pieces.

One walk over the messages collects them. A newer version of a plan, a page, a report or a file
replaces the older one. Pure, and linear in the text.
"""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from context_compaction.activity import outcome
from context_compaction.activity.calls import (
    ToolUse,
    brings_report,
    classify,
    is_bookkeeping,
    is_question,
    words_in_name,
)
from context_compaction.activity.files import holds_secrets
from context_compaction.activity.outcome import command_output, counts_failures, is_failed
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
    is_list,
    is_object,
    is_rules,
    is_synthetic_result,
    named_arguments,
    text_of,
)
from context_compaction.messages.speakers import passages_of
from context_compaction.messages.tool_pairs import with_unique_call_ids
from context_compaction.messages.tool_results import refusal_comment, result_text
from context_compaction.summarizers.extractive.paragraphs import (
    GROUP_CHARS,
    SHORT_CHARS,
    line_groups,
    paragraphs,
    shown,
)
from context_compaction.summarizers.instructions.find import SURE_RANK, find_instructions

Kind: TypeAlias = Literal[
    "user", "rule", "wish", "closing", "remark", "plan", "note", "document", "earlier", "failure",
    "deed", "newest", "call", "result", "record", "report", "rules", "file", "host", "media",
    "replaced", "attached",
]  # fmt: skip

_logger = logging.getLogger(__name__)

_LABEL_CHARS = 80
# What these return is no outcome, but a text.
_SHOWING = ("read", "search", "list")
# By the first word of its label the kind of an entry of an earlier summary.
_KINDS_OF_LABELS: Mapping[str, Kind] = {
    "agent": "remark", "called": "call", "result": "result", "tool": "result", "host": "host",
}  # fmt: skip
# Below this rank a sentence of the user's is surely of the moment only, or chatter.
BINDING_RANK = 1.0
_DOCUMENTS = (".md", ".txt", ".rst")
# Rules of the project that agents keep in files.
_GUIDES = ("AGENTS.md", "CLAUDE.md", "GEMINI.md", "CONTRIBUTING.md")

# What a file with passwords contains does not come back by itself.
_HIDDEN = "[its text may hold secrets]"
_COMMIT = re.compile(r"^\[(\S{1,100})(?: \([^)\n]*\))? ([0-9a-f]{7,40})\] ([^\n]+)$", re.MULTILINE)
_SUCCESS = re.compile(r"\bsuccess(?:fully)?\b", re.IGNORECASE)
_ERROR = re.compile(r"^E  |\bassert\w*\b|\b\w*(?:Error|Exception)\b|\bFAILED\b|\bpanic\b", re.M)


# Work in the background: how a call asks for it, how its result says so and names it, and how a
# later text says that it ended. Only the beginning of a text is searched.
_BACKGROUND = ("run_in_background", "is_background", "background")
_STARTED = re.compile(
    r"(?:running|started|launched) in (?:the )?background|agent launched"
    r"|rocess running with (?:session )?ID|status\W{1,3}running"
)
_JOB_ID = re.compile(r"(?:id|ID|Id)\b[\"']?\s?[:=]?\s?[\"'`]?([\w.-]{3,64})")
_ENDED = re.compile(r"\b(?:complet|finish|exit|kill|terminat|stopp|fail|cancel)\w*", re.IGNORECASE)
_JOB_CHARS = 2_000
# How Claude Code begins the text of a skill, in a message behind the call.
_SKILL = "Base directory for this skill:"


@dataclass(eq=False, slots=True)
class Item:
    """One thing that was said or done.

    Attributes:
        at: Position of its message among those that were walked.
        kind: What it is, for its weight.
        label: Who or what it is from.
        pieces: Its text in whole paragraphs, or groups of lines.
        order: The pieces in the order in which they are bought.
        block: Position of its block in the message; -1 for all texts of the message.
        number: The number of its message in the transcript, where that is known.
        path: The file that it is the text of; "" for other items.
        note: What is to be known of that text.
        in_file: The file whose item has the rest of the text of a call or a result.
        is_unread: Whether it is of the newest calls, whose results the model has not seen.
        in_focus: Whether the caller's instructions name it.
        age: How many newer items of its kind and newer turns there are.
        bought: The pieces that are in the context.
        costs: The tokens of the pieces in the order in which they are bought, as far as counted.
    """

    at: int
    kind: Kind
    label: str
    pieces: Sequence[str]
    order: Sequence[int]
    block: int = -1
    number: int | None = None
    path: str = ""
    note: str = ""
    in_file: str = ""
    is_unread: bool = False
    in_focus: bool = False
    age: int = 0
    bought: set[int] = field(default_factory=set[int])
    costs: list[int] = field(default_factory=list[int])

    @property
    def is_whole(self) -> bool:
        """Whether nothing of it is left out."""
        return len(self.bought) == len(self.pieces)

    @property
    def text(self) -> str:
        """What was bought of it, with marks where something is left out."""
        return shown(self.pieces, self.bought)


@dataclass(frozen=True, slots=True)
class FileItem:
    """What is known of a file in work: a text, where it was edited last, and when it was used.

    `names` are the paths by which calls name this file and no other.
    """

    path: str
    text: str
    at: int
    focus: int = 0
    note: str = ""
    is_written: bool = False
    names: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """The items of a conversation.

    Attributes:
        items: The items, oldest first.
        positions: For each message that was walked its position in the list at hand; None for one
            from the archive.
    """

    items: Sequence[Item]
    positions: Sequence[int | None] = ()

    def position_of(self, item: Item) -> int:
        """The position of an item's message in the list; -1 for one from the archive."""
        position = self.positions[item.at] if item.at < len(self.positions) else None
        return -1 if position is None else position


@dataclass(slots=True)
class _Turn:
    """What the agent did between two messages of the user's."""

    at: int
    changed: dict[str, None] = field(default_factory=dict[str, None])
    committed: dict[str, None] = field(default_factory=dict[str, None])
    mended: dict[str, None] = field(default_factory=dict[str, None])


def collect(
    messages: Messages,
    numbers: Sequence[int | None],
    *,
    files: Iterable[FileItem] = (),
    earlier: Mapping[int, str] | None = None,
    kinds: Mapping[str, str] | None = None,
    newest_at: int | None = None,
) -> list[Item]:
    """The items of `messages`, oldest first, and those of the files.

    Args:
        messages: The conversation, in the original words where they are known.
        numbers: The number of each message in the transcript.
        files: The last known texts of the files in work.
        earlier: By position the labels of messages that are entries of an earlier summary.
        kinds: Kinds of tools by name, which the caller gives.
        newest_at: Where the results begin that the model has not seen.
    """
    walk = _Walk(with_unique_call_ids(messages), numbers, kinds or {}, newest_at)
    files = list(files)
    walk.known = {name: file for file in files if file.text for name in file.names}
    walk.run(earlier or {})
    walk.add_rules()
    walk.add_deeds()
    walk.add_files(files)
    return [item for item in walk.items if item.pieces]


class _Walk:
    """The walk through the messages."""

    def __init__(
        self,
        messages: Messages,
        numbers: Sequence[int | None],
        kinds: Mapping[str, str],
        newest_at: int | None,
    ) -> None:
        self.items: list[Item] = []
        self.known: Mapping[str, FileItem] = {}
        self._messages, self._numbers, self._kinds = messages, numbers, kinds
        self._newest_at = len(messages) + 1 if newest_at is None else newest_at
        self._calls: dict[str, tuple[ToolCall, ToolUse]] = {}
        self._versions: dict[Any, Item] = {}
        self._failed: dict[str, Item] = {}
        self._call_items: dict[str, Item] = {}
        self._jobs: dict[str, list[tuple[Item, Kind]]] = {}
        self._turns = [_Turn(0)]
        self._closing: Item | None = None

    def add(
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

    def run(self, earlier: Mapping[int, str]) -> None:
        for at, message in enumerate(self._messages):
            if label := earlier.get(at):
                kind = _KINDS_OF_LABELS.get(label.partition(" ")[0], "earlier")
                self.add(at, kind, label, paragraphs(text_of(message.blocks)))
                continue
            if placeholders.is_synthetic(message) or placeholders.is_system(message):
                continue
            self._spoken(at, message)
            for number, block in enumerate(message.blocks):
                match block:
                    case ToolCall() | ToolResult():
                        self._read(at, number, block)
                    case Image() | Document():
                        self.add(at, "media", message.role, [_named(block)], block=number)
                    case Opaque():
                        self.add(at, "host", message.role, [_named(block)], block=number)
                    case _:
                        pass

    def _read(self, at: int, number: int, block: ToolCall | ToolResult) -> None:
        try:
            if isinstance(block, ToolCall):
                self._called(at, number, block)
            else:
                self._answered(at, number, block)
        except Exception:  # calls and results may hold anything
            _logger.exception("a call or result of message %d cannot be read", at)
            if isinstance(block, ToolCall):
                self.add(at, "call", "called", [block.name], block=number)
            else:
                self.add(at, "result", "result of tool", [result_text(block)], block=number)

    def _spoken(self, at: int, message: Message) -> None:
        said: dict[str, list[str]] = {}
        for number, block in enumerate(message.blocks):
            if not isinstance(block, Text):
                continue
            for author, text in passages_of(message, block):
                if author == "tool" and text.strip():
                    pieces = line_groups(text)
                    order = errors_first(pieces)
                    self.add(at, self._result_kind(at), "tool", pieces, order=order, block=number)
                elif author != "compaction" and text.strip():
                    said.setdefault(author, []).append(text.strip())
        if typed := "\n".join(said.pop("user", ())):
            self._turns.append(_Turn(at))
            self._closing = None
            pieces = paragraphs(typed)
            self.add(at, "user", "user", pieces, order=typed_first(pieces))
        if texts := said.pop("agent", ()):
            if self._closing is not None:
                self._closing.kind = "remark"
            self._closing = self.add(at, "closing", "agent", paragraphs("\n\n".join(texts)))
            self._replace(("said", *self._closing.pieces), self._closing)  # said again
        is_guide = any(map(is_rules, message.blocks))
        for texts in said.values():
            self._host_said(at, "\n\n".join(texts), is_guide=is_guide)

    def _host_said(self, at: int, text: str, *, is_guide: bool) -> None:
        self._end_jobs(text)
        # Rules of the project stay as a message.
        item = self.add(at, "replaced" if is_guide else "host", "host", paragraphs(text))
        if text.startswith(_SKILL):
            item.kind = "attached"
            self._replace(("skill", *item.pieces[:1]), item)

    def _result_kind(self, at: int) -> Kind:
        return "newest" if at >= self._newest_at else "result"

    def _called(self, at: int, number: int, call: ToolCall) -> None:
        use = classify(call, self._kinds)
        self._calls[call.call_id] = call, use
        kind = self._kind_of(call, use)
        if kind in ("plan", "note"):
            texts = [text for text in strings_in(call.arguments) if text.strip()]
            pieces = paragraphs("\n\n".join([call.name, *texts]))
            item = self.add(at, kind, "called", pieces, block=number)
        else:
            is_in_file = at < self._newest_at - 1 and self._is_in_file(use)
            pieces = self._call_pieces(call, use, is_in_file=is_in_file)
            item = self.add(at, kind, "called", pieces, block=number)
            item.in_file = self.known[use.path or ""].path if is_in_file else ""
        self._call_items[call.call_id] = item
        if kind == "plan":
            self._replace(("plan", call.name), item)

    def _kind_of(self, call: ToolCall, use: ToolUse) -> Kind:
        if is_bookkeeping(call.name) and "skill" not in words_in_name(call.name):
            return "plan"
        if use.kind == "other" and not brings_report(call.name):
            texts = strings_in(call.arguments)
            # An argument of fewer words is a click or a search.
            if any(sum(map(str.isalpha, text.split())) > 4 for text in texts):
                return "note"
        return "call"

    def _is_in_file(self, use: ToolUse) -> bool:
        return use.kind in ("write", "edit") and use.path in self.known

    def _call_pieces(self, call: ToolCall, use: ToolUse, *, is_in_file: bool) -> list[str]:
        if use.kind in ("write", "edit") and use.path:
            head = f"{call.name} {use.path}"
            if is_in_file or holds_secrets(use.path):
                return [head]
            texts = [t for t in strings_in(call.arguments) if t != use.path and t.strip()]
            return [head, *line_groups("\n".join(texts))]
        if use.command:
            return line_groups(f"{call.name}: {use.command}")
        arguments: object = call.arguments
        if is_object(arguments) and len(arguments) == 1:
            [arguments] = arguments.values()
        text = arguments if isinstance(arguments, str) else _json_of(arguments)
        return line_groups(f"{call.name}: {text}")

    def _replace(self, key: Any, item: Item) -> None:
        """Record `item` as the newest version of `key`."""
        if key in self._versions:
            self._versions[key].kind = "replaced"
        self._versions[key] = item

    def _answered(self, at: int, number: int, result: ToolResult) -> None:
        call, use = self._calls.get(result.call_id, (None, ToolUse("other")))
        name = call.name if call else result.name or "tool"
        label = f"result of {name} {use.path or use.command or ''}".strip()
        label = label.partition("\n")[0][:_LABEL_CHARS]
        text = result_text(result)
        said = refusal_comment(result)
        media = [_named(part) for part in result.content if isinstance(part, Image | Document)]
        if media:
            self.add(at, "media", label, list(dict.fromkeys(media)))
        if is_synthetic_result(result):
            self.add(at, "replaced", label, [text], block=number)
        elif said is not None:
            # A page or a command may say so as well, so that it is the tool's word.
            refusal = "tool, on a refusal by the user"
            self.add(at, "user", refusal, [said or text.strip()], block=number)
        elif is_question(name):
            self.add(at, "user", "user answered", paragraphs(text), block=number)
        elif brings_report(name):
            item = self.add(at, "report", label, paragraphs(text), block=number)
            self._follow_job(call, item, text)
        elif call is not None and "skill" in words_in_name(name) and not is_failed(result):
            item = self.add(at, "attached", label, paragraphs(text), block=number)
            self._replace((name, _json_of(call.arguments)), item)
        else:
            item = self._output(at, number, result, use, label)
            self._follow_job(call, item, text)
            if call is not None and use.kind != "edit":
                self._replace((name, use.path, use.command, use.range, _key_of(call, use)), item)

    def _follow_job(self, call: ToolCall | None, result: Item, text: str) -> None:
        """Attach the call and the result that start work in the background, until it ends."""
        if call is None or self._end_jobs(f"{_json_of(call.arguments)[:_JOB_CHARS]}\n{text}"):
            return
        arguments = named_arguments(call)
        head = text[:_JOB_CHARS]
        asks = any(arguments.get(name) is True for name in _BACKGROUND)
        if not asks and not _is_running(head):
            return
        started = [(item, item.kind) for item in (self._call_items[call.call_id], result)]
        for item, _ in started:
            item.kind = "attached"
        self._jobs |= dict.fromkeys(_JOB_ID.findall(head), started)

    def _end_jobs(self, text: str) -> bool:
        """Whether `text` names work in the background; if that has ended, attach it no more."""
        if not self._jobs:
            return False
        head = text[: 2 * _JOB_CHARS]
        named = self._jobs.keys() & set(re.findall(r"[\w.-]{3,64}", head))
        if named and _ENDED.search(head) and not _is_running(head):
            for item, kind in (pair for name in named for pair in self._jobs.pop(name)):
                item.kind = kind if item.kind == "attached" else item.kind
        return bool(named)

    def _output(self, at: int, number: int, result: ToolResult, use: ToolUse, label: str) -> Item:
        """Add the item of what a tool returned, and record what was done."""
        text = result_text(result)
        if placeholders.is_placeholder(result):
            text = placeholders.preview_in(text)
        if use.path and holds_secrets(use.path) and text:
            text = _HIDDEN
        is_command = use.kind == "execute"
        if is_command:
            text, _ = command_output(text)
        has_failed = bool(is_failed(result)) or (is_command and counts_failures(text))
        kind = self._result_kind(at)
        data = outcome.parsed_json(text) if use.kind == "other" else None
        if data is not None:
            kind = "record" if kind == "result" else kind
            pieces = _rows(data)
            order: Sequence[int] = range(len(pieces))
        else:
            pieces = line_groups(text)
            order = ends_first(pieces) if use.kind in _SHOWING else errors_first(pieces)
        item = self.add(at, kind, label, pieces, order=order, block=number)
        self._done(use, text, item, has_failed=has_failed)
        return item

    def _done(self, use: ToolUse, text: str, item: Item, *, has_failed: bool) -> None:
        turn = self._turns[-1]
        if use.kind == "execute" and use.command:
            for branch, commit, subject in _COMMIT.findall(text):
                turn.committed[f"{commit} on {branch}: {subject}"] = None
            before = self._failed.pop(use.command, None)
            if has_failed:
                self._failed[use.command] = item
            elif before is not None:
                turn.mended[use.command.partition("\n")[0][:_LABEL_CHARS]] = None
        if has_failed or not use.path:
            return
        if use.kind in ("write", "edit"):
            turn.changed["/".join(use.path.split("/")[-2:])] = None
        elif use.kind == "read" and use.path in self.known and item.kind == "result":
            item.kind, item.in_file = "replaced", self.known[use.path].path

    def add_rules(self) -> None:
        """Add what the user laid down for all later work, and mark what later words replace."""
        found = find_instructions(self._messages)
        said = {item.at: item for item in self.items if item.label == "user"}
        for one in found.standing:
            if one.text in found.replaced and one.turn in said:
                marked = f"{found.mark_of(one.text, self._numbers)}{one.text}"
                item = said[one.turn]
                item.pieces = [
                    piece.replace(marked, one.text).replace(one.text, marked)
                    for piece in item.pieces
                ]
        for one in found.standing:
            if one.rank >= BINDING_RANK and one.text not in found.replaced:
                mark = found.mark_of(one.text, self._numbers)
                kind: Kind = "rule" if one.rank >= SURE_RANK else "wish"
                self.add(one.turn, kind, "user", [f"{mark}{one.text}"])

    def add_deeds(self) -> None:
        """Add a line for each turn in which something was done, and mark the open failures."""
        for item in self._failed.values():
            if item.kind == "result":
                item.kind = "failure"
        for turn in self._turns:
            named = {
                "changed": turn.changed,
                "committed": turn.committed,
                "failed, then passed": turn.mended,
            }
            told = [f"{word} {', '.join(names)}" for word, names in named.items() if names]
            if told:
                self.add(turn.at, "deed", "done in this turn", ["; ".join(told)])

    def add_files(self, files: Iterable[FileItem]) -> None:
        """Add an item for each file with a known text, offered outwards from its last edit."""
        for file in files:
            if not file.text.strip():
                continue
            pieces = [file.text] if len(file.text) < SHORT_CHARS else line_groups(file.text)
            centre, place = 0, 0
            for number, piece in enumerate(pieces):
                if place <= file.focus:
                    centre = number
                place += len(piece) + 1
            order = sorted(range(len(pieces)), key=lambda n: abs(n - centre))
            kind: Kind = "file"
            if file.path.endswith(_GUIDES):
                kind = "rules"
            elif file.is_written and file.path.endswith(_DOCUMENTS):
                kind = "document"
            item = self.add(file.at, kind, file.path, pieces, order=order, block=-2)
            item.path, item.note = file.path, file.note


def _is_running(text: str) -> bool:
    """Whether the first lines of a result say that its work goes on in the background."""
    return any(map(_STARTED.search, text.split("\n", 5)[:5]))


def typed_first(pieces: Sequence[str]) -> list[int]:
    """The pieces that a person may have typed, then those that look pasted: what is far behind."""
    typed = typed_pieces(pieces)
    return [*typed, *(n for n in range(len(pieces)) if n not in set(typed))]


def typed_pieces(pieces: Sequence[str]) -> list[int]:
    """The pieces within what a person types at most, and a short last one."""
    typed: list[int] = []
    size_chars = 0
    for number, piece in enumerate(pieces):
        if size_chars > SHORT_CHARS:
            break
        typed.append(number)
        size_chars += len(piece)
    last = len(pieces) - 1
    if last not in typed and len(pieces[last]) < GROUP_CHARS:
        typed.append(last)
    return typed


def ends_first(pieces: Sequence[str]) -> list[int]:
    """First, last, second, last but one, and so on."""
    size = len(pieces)
    return [n // 2 if n % 2 == 0 else size - 1 - n // 2 for n in range(size)]


def errors_first(pieces: Sequence[str]) -> list[int]:
    """The last piece with an error and the last one with a success, then the ends."""
    ends = ends_first(pieces)
    telling = (
        next((n for n in reversed(range(len(pieces))) if pattern.search(pieces[n])), ends[0])
        for pattern in (_ERROR, _SUCCESS)
    )
    return list(dict.fromkeys((*telling, *ends))) if pieces else []


def strings_in(value: object) -> Iterator[str]:
    """The strings in a JSON value, in order."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif is_object(one):
            waiting += reversed(one.values())
        elif is_list(one):
            waiting += reversed(one)


def _rows(data: Any) -> list[str]:
    """The rows of a record; they are short, and each says something by itself."""
    return line_groups("\n".join(outcome.json_lines(data)), 150)


def _key_of(call: ToolCall, use: ToolUse) -> str:
    """What tells a call without a path or a command from others of its tool."""
    if use.path or use.command:
        return ""
    return _json_of(call.arguments)


def _json_of(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _named(block: Image | Document | Opaque) -> str:
    if isinstance(block, Opaque):
        return f"[a block of the kind {block.kind[:_LABEL_CHARS]}]"
    what = "an image" if isinstance(block, Image) else "a document"
    return f"[{what}, {block.media_type[:_LABEL_CHARS]}]"

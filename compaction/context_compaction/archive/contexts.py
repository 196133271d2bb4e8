"""Stored contexts of a session: which of them replaces the start of a message list.

A compaction stores the context that it left, with the branch that it was made from. A later list
that starts with the messages of that branch continues from the context instead.

Hosts trim white space, write the arguments of a call again, drop thinking, reminders and fields of
the provider, give calls other IDs, shorten old results, and put a notice in the place of old media.
The words, calls, results and media stay equal.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_compaction.activity.outcome import is_shortened, without_reminder
from context_compaction.archive.histories import HistoryTree, MissingHistoryError, Node
from context_compaction.archive.records import LinePlace, LoggedRecord, role_of
from context_compaction.archive.values import NO_SEQ, ContextEntry
from context_compaction.messages import model
from context_compaction.messages.placeholders import ids_in_placeholder
from context_compaction.messages.raw import ROOT, chain_hashes, without_cache_markers
from context_compaction.messages.speakers import user_text

# A list may continue from any of the newest contexts, because agents may share a session.
_TRIED_CONTEXTS = 4
# Most messages that a host adds, removes or rewrites between two calls. Different conversations may
# have fewer equal messages by chance.
_MAX_CHANGES = 3
_HOST_ROLES = ("user", "system")  # a host may add, remove or change only these messages


@dataclass(frozen=True, slots=True)
class ComparedList:
    """A list whose start a stored context may replace.

    Attributes:
        contents: Content hashes of the messages.
        chain: Chain hashes of the messages.
        message: Returns the message at an index.
        archived: Returns the archived message with a number. Both functions return None if the
            message cannot be read.
    """

    contents: Sequence[str]
    chain: Sequence[str]
    message: Callable[[int], model.Message | None]
    archived: Callable[[int], model.Message | None]


@dataclass(frozen=True, slots=True)
class StoredContext:
    """A context that a compaction left.

    Attributes:
        number: Number of its record.
        place: Position of its record.
        entries: Its messages, without `raw`.
        names: Chain hash of each entry.
        histories: Chain hashes of the lists that it was made from: the caller's list, and if that
            started with another context's originals, the list with that context instead.
    """

    number: int
    place: LinePlace
    entries: tuple[ContextEntry, ...]
    names: tuple[str, ...]
    histories: tuple[str, ...]

    @property
    def end(self) -> str:
        """Chain hash after its last entry."""
        return self.names[-1]

    @property
    def is_undo(self) -> bool:
        """Whether a compaction was undone here: the context is the list that it was made from."""
        return self.end in self.histories


@dataclass(frozen=True, slots=True)
class ContextMatch:
    """A stored context that replaces the start of a list.

    Attributes:
        message_count: Number of messages of the list that it replaces.
        stored: The context.
        heads: For each of its entries, the chain hash of the history that ends there.
        lead: Number of the list's first messages that replace the first `stored_lead` entries,
            because the host rewrote its own messages there.
        stored_lead: Number of the first entries that are not used.
        entry_count: Number of entries up to the first one that the host changed since.
    """

    message_count: int
    stored: StoredContext
    heads: tuple[str, ...]
    lead: int
    stored_lead: int
    entry_count: int


@dataclass(slots=True)
class StoredContexts:
    """All stored contexts of one session.

    Attributes:
        tree: The branches of the session.
        all: The contexts by the numbers of their records.
        by_history: For the chain hash of a list, the newest context that was made from the list.
        by_end: The contexts by the chain hash of their own entries.
    """

    tree: HistoryTree
    all: dict[int, StoredContext] = field(default_factory=dict[int, StoredContext])
    by_history: dict[str, StoredContext] = field(default_factory=dict[str, StoredContext])
    by_end: dict[str, StoredContext] = field(default_factory=dict[str, StoredContext])

    def learn(self, record: LoggedRecord, number: int) -> None:
        """Add the context of a record."""
        head = record.head
        entries = tuple(
            ContextEntry(seq, {}, source_seq, "".join(replaced_head), content)
            for content, seq, source_seq, *replaced_head in head["entries"]
        )
        names = tuple(self.tree.add_context(entries, number, head["of"]))
        histories = tuple(name for name in (head["of"], head["listed"]) if name != ROOT)
        stored = StoredContext(number, record.place, entries, names, histories)
        self.all[number] = self.by_end[stored.end] = stored
        for name in histories:
            if name not in self.by_history or self.by_history[name].number < number:
                self.by_history[name] = stored

    def newest_first(self) -> list[StoredContext]:
        """Return all contexts, newest first."""
        return sorted(self.all.values(), key=lambda stored: -stored.number)

    def match(self, given: ComparedList) -> ContextMatch | None:
        """Return the context that replaces the start of a list.

        None if no context does, or if the list already contains the context. A list that starts
        with the originals of a context may also be a changed list of a newer context.
        """
        match = self._match_start(given.contents, given.chain)
        oldest = -1 if match is None else match.stored.number
        newer = {s.number: s for s in self.by_history.values() if s.number > oldest}
        for number in sorted(newer, reverse=True)[:_TRIED_CONTEXTS]:
            if newer[number].is_undo:
                if self._align(self._originals(newer[number].end), given):
                    return None  # the older contexts of this list were undone
                continue
            for history in newer[number].histories:
                changed = self._match_changed(newer[number], history, given)
                if changed is not None:
                    return changed
        return match

    def _match_start(self, contents: Sequence[str], chain: Sequence[str]) -> ContextMatch | None:
        """Return the context made from the longest start of a list.

        The originals of a context may themselves contain an earlier context.
        """
        match: ContextMatch | None = None
        while found := self._context_of(chain):
            count, stored = found
            if match is not None and stored.number <= match.stored.number:
                break
            shift = 0 if match is None else match.message_count - match.entry_count
            contents = [*(entry.content for entry in stored.entries), *contents[count:]]
            chain = chain_hashes(contents)
            length = len(stored.entries)
            match = ContextMatch(shift + count, stored, stored.names, 0, 0, length)
        return match

    def _context_of(self, chain: Sequence[str]) -> tuple[int, StoredContext] | None:
        """Return the length of the longest start that a context was made from, and the context."""
        for count in range(len(chain), 0, -1):
            stored = self.by_history.get(chain[count - 1])
            if stored is not None and stored.end != chain[count - 1]:
                return count, stored
            if chain[count - 1] in self.by_end:
                break
        return None

    def _match_changed(
        self, stored: StoredContext, history: str, given: ComparedList
    ) -> ContextMatch | None:
        """Return the match of a context with a list whose host changed some messages."""
        entries, originals = stored.entries, self._originals(history)
        made = {
            name for name, entry in zip(stored.names, entries, strict=True) if entry.seq == NO_SEQ
        }
        if not made.isdisjoint(given.chain):
            return None
        indexes = self._align(originals, given)
        if not indexes:
            return None
        tail = _tail_entries(entries, originals)
        replaced_count = len(originals) - len(tail)
        pairs = zip(entries, originals[:replaced_count], strict=False)
        stored_lead = next(
            (number for number, (entry, node) in enumerate(pairs) if entry.seq != node.seq),
            min(len(entries), replaced_count),
        )
        lead = next((index for index in indexes[stored_lead:] if index is not None), None)
        before = [index for index in indexes[:replaced_count] if index is not None]
        if lead is None or (replaced_count and not before):
            return None
        # A compaction that only cleared results kept all messages, so none precedes the kept ones.
        count = before[-1] + 1 if before else lead
        number, entry_count = replaced_count, len(entries)
        roles = self.tree.roles_of(originals)
        for entry_index in tail:
            # The list has its own messages from the first change on. But a shortened result or
            # answer stays, because its original still says the same.
            is_edited = entries[entry_index].seq == NO_SEQ and roles[number] not in _HOST_ROLES
            if indexes[number] != count or not (
                is_edited or given.contents[count] == originals[number].content
            ):
                entry_count = entry_index
                break
            count, number = count + 1, number + 1
        is_plain = all(entry.seq != NO_SEQ for entry in entries[:entry_count])
        if is_plain and entry_count == number:
            return None  # only messages that the context did not change are left
        # The entries keep their stored names, because no list with the new start was stored.
        heads = (*given.chain[:lead], *stored.names[stored_lead:entry_count])
        return ContextMatch(count, stored, heads, lead, stored_lead, entry_count)

    def _align(self, originals: Sequence[Node], given: ComparedList) -> list[int | None]:
        """Return the index of each original in a list, or None for one that the host removed.

        Hosts add a reminder or the time for one call only, and rewrite their system messages, the
        first message, or their own text next to the user's last words. At most `_MAX_CHANGES` such
        changes are accepted. Hosts also rewrite messages without changing what they say. Everything
        that the assistant and the tools said must be in the list, because a context may describe
        any of it, and another conversation must not read that.

        Returns:
            An empty list if anything but the host's own messages differs, or if too much differs.
        """
        if not originals:
            return []
        contents = given.contents
        own_roles = self.tree.roles_of(originals)
        first = next((number for number, role in enumerate(own_roles) if role != "system"), 0)
        # After this message, the host may have removed or rewritten any of its messages.
        fixed = (number for number, role in enumerate(own_roles) if role not in _HOST_ROLES)
        last_fixed = max(fixed, default=-1)
        requests = (number for number, role in enumerate(own_roles) if role == "user")
        last_request = max(requests, default=-1)
        known = [node.content for node in originals]
        indexes: list[int | None] = []
        index = changes = 0
        while len(indexes) < len(known) and changes <= _MAX_CHANGES:
            number = len(indexes)
            here, following = (*contents[index : index + 2], "", "")[:2]
            next_known = (*known[number + 1 : number + 2], None)[0]
            if known[number] == here:
                indexes.append(index)
                index += 1
                continue
            archived = self._archived(originals[number], given)
            message = given.message(index) if here else None
            has_original, has_message = _said_in(archived, message)
            if has_original or has_message:
                indexes += [index if has_message else None] * has_original
                index += has_message
                continue
            changes += 1
            is_hosts = own_roles[number] in _HOST_ROLES
            is_rewritten = next_known == following
            if known[number] == following and message and role_of(message) in _HOST_ROLES:
                index += 1  # the list has an additional message for this call
            elif is_hosts and (next_known == here or number > last_fixed):
                indexes.append(None)  # the message was for an earlier call only
            elif is_rewritten and (
                own_roles[number] == "system"
                or number == first
                or (number == last_request and has_same_request(archived, message))
            ):
                indexes.append(index)
                index += 1
            else:
                return []
        if len(indexes) < len(known) or changes > _MAX_CHANGES:
            return []
        # If the first message differs too, more of the list has to be evidence for the match.
        start = indexes[first]
        is_same_start = start is not None and (
            contents[start] == known[first]
            or all(_said_in(self._archived(originals[first], given), given.message(start)))
        )
        unchanged = len(known) - changes
        return indexes if unchanged >= (changes if is_same_start else _MAX_CHANGES) else []

    def _archived(self, node: Node, given: ComparedList) -> model.Message | None:
        """Return the archived message of a node; None if this library wrote or edited it."""
        archived = self.tree.messages.get(node.seq)
        is_own = archived is not None and archived.content == node.content
        return given.archived(node.seq) if is_own else None

    def _originals(self, history: str) -> list[Node]:
        try:
            return [node for _, node in self.tree.path(history)]
        except MissingHistoryError:
            return []

    def current(
        self, archived: Callable[[int], model.Message | None]
    ) -> tuple[list[tuple[str, Node]], ContextMatch | None]:
        """Return the newest list with its chain hashes, and the context that replaces its start.

        That is the branch that was extended last, or the list of a newer compaction with all that
        was appended to the list meanwhile.

        Raises:
            ArchiveDamagedError: A message or context of the branch cannot be read.
        """
        ends, head = self.tree.ends(), ROOT
        newest = self.all.get(max(self.all, default=-1))
        if newest is not None and newest.number > self.tree.newest:
            starts = {newest.end, *newest.histories}
            ends = [name for name in ends if not starts.isdisjoint(self.tree.names(name))]
            head = newest.end
        nodes = self.tree.path(next(iter(ends), head))
        contents = [node.content for _, node in nodes]
        listed = ComparedList(
            contents, chain_hashes(contents), lambda index: archived(nodes[index][1].seq), archived
        )
        return nodes, self.match(listed)


def _tail_entries(entries: Sequence[ContextEntry], originals: Sequence[Node]) -> list[int]:
    """Return the indexes of the entries that are the last originals, edited or not."""
    indexes: list[int] = []
    for index in range(len(entries) - 1, -1, -1):
        original = entries[index].original_seq
        if original == NO_SEQ and not entries[index].replaced_head:
            continue  # a note between the messages that this library wrote
        if len(indexes) == len(originals) or originals[-1 - len(indexes)].seq != original:
            break
        indexes.append(index)
    return indexes[::-1]


# Messages that a host rewrote ---------------------------------------------------------------------


_TAG = re.compile(r"<(/?)([a-z][\w-]{0,40})>", re.IGNORECASE)


def _said_in(archived: model.Message | None, message: model.Message | None) -> tuple[bool, bool]:
    """Return for each of two messages whether it has its place in the other list.

    Both have if their words, calls, results and media are equal. A message with nothing but
    thinking has, too, because the other list may lack it.

    Args:
        archived: The archived message; None if it cannot be compared.
        message: The message of the list; None if it cannot be compared.
    """
    one = None if archived is None else _said(archived.blocks)
    other = None if message is None else _said(message.blocks)
    if archived and message and archived.role == message.role and _are_same(one, other):
        return True, True
    return one == [], other == [] and one != []


def has_same_request(archived: model.Message | None, message: model.Message | None) -> bool:
    """Whether the user typed equal words, without the elements that the host added to them."""
    if archived is None or message is None:
        return False
    return _typed_words(archived) == _typed_words(message)


def _typed_words(message: model.Message) -> str:
    text = user_text(message)
    parts: list[str] = []
    position = 0
    for start, stop in _elements_in(text):
        if start >= position:
            parts.append(text[position:start])
            position = stop
    return "".join((*parts, text[position:])).strip()


def _elements_in(text: str) -> list[tuple[int, int]]:
    """Return the start of each element, and the end of the next end tag with its name."""
    ends: dict[str, int] = {}
    elements: list[tuple[int, int]] = []
    for tag in reversed([*_TAG.finditer(text)]):
        name = tag[2].lower()
        if tag[1]:
            ends[name] = tag.end()
        elif name in ends:
            elements.append((tag.start(), ends[name]))
    return elements[::-1]


def _said(blocks: Sequence[model.Block]) -> list[Any]:
    """Return what blocks say: a text without white space at its ends, a call without its ID."""
    said: list[Any] = []
    for block in blocks:
        match block:
            case model.Text(text):
                said += [text] if (text := _words(text)) else []
            case model.Thinking():
                pass
            case model.ToolCall(_, name, arguments):
                said.append((name, arguments))
            case model.Opaque(_, source):
                unmarked = without_cache_markers(source)
                said.append({k: v for k, v in unmarked.items() if k not in ("id", "tool_use_id")})
            case _:
                said.append(block)
    return said


def _words(text: str) -> str:
    """Return `text` without thinking at its start, reminders, empty lines and ends of lines."""
    text = without_reminder(text).strip()
    elements = _elements_in(text) if text.startswith("<think") else ()
    stop = next((stop for start, stop in elements if start == 0), 0)
    lines = text[stop:].strip().splitlines()
    return "\n".join(filter(None, map(str.rstrip, lines)))


def _are_same(one: Sequence[Any] | None, other: Sequence[Any] | None) -> bool:
    if one is None or other is None or len(one) != len(other):
        return False
    return all(map(_is_same, one, other))


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, model.Image | model.Document) and isinstance(other, str):
        return is_shortened(other, "")
    if not (isinstance(one, model.ToolResult) and isinstance(other, model.ToolResult)):
        return bool(one == other)
    if one.is_error != other.is_error:
        return False
    return _is_excerpt(one.content, other.content) or _is_excerpt(other.content, one.content)


def _is_excerpt(parts: Sequence[model.Part], of: Sequence[model.Part]) -> bool:
    """Whether a host may have shortened the parts `of` a result to `parts`."""
    text, whole = _words(model.text_of(parts)), _words(model.text_of(of))
    media = [part for part in of if not isinstance(part, model.Text)]
    has_media = all(part in media for part in parts if not isinstance(part, model.Text))
    is_ours = bool(ids_in_placeholder(text))
    return has_media and (text == whole or (is_shortened(text, whole) and not is_ours))

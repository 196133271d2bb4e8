"""Hits: which rows of a ranking are shown, and what a hit contains."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from context_compaction.archive import History, Hit
from context_compaction.archive.documents import DocText
from context_compaction.archive.snippets import passage_span
from context_compaction.messages.history_hash import HEAD_CHARS

MAX_HITS_PER_OUTPUT = 3

_DOCS_A_READ = 200
_QUESTION = re.compile(r"[?？؟][\W_]*\Z")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of an index: a message, or a part of an output.

    Attributes:
        doc_id: Larger is newer, as far as things were indexed in the order of their time.
        session_id: The session that contains it.
        seq: The message's number; -1 for an output.
        output_id: The output's id; None for a message.
        start_byte: Where the part begins in the output; size_bytes, start_char and start_line mean
            likewise what `IndexedPart` does.
        seconds: Its time, in Unix time.
    """

    doc_id: int
    session_id: str
    seq: int
    output_id: str | None
    start_byte: int
    size_bytes: int
    start_char: int
    start_line: int
    seconds: float


R = TypeVar("R", bound=Row)


def grouped(
    docs: Callable[[Sequence[int]], Sequence[R]], ids: Sequence[int], first: int
) -> Iterator[R]:
    """The rows of `ids`: of any one output a few at most, of a message one.

    Args:
        docs: Returns rows by their ids.
        ids: All rows, the best first.
        first: How many are read at once to begin with; mostly no more are needed.
    """
    groups = Groups()
    start, stop = 0, first
    while start < len(ids):
        yield from filter(groups.has_room, docs(ids[start:stop]))
        start, stop = stop, stop + _DOCS_A_READ


class Groups:
    """Counts the rows shown of each output and message."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str | int], int] = {}

    def has_room(self, doc: Row) -> bool:
        """Count a row; False where its output has had its share, or the message was shown."""
        group = (doc.session_id, doc.output_id or doc.seq)
        self._shown[group] = self._shown.get(group, 0) + 1
        return self._shown[group] <= (MAX_HITS_PER_OUTPUT if doc.output_id else 1)


def next_hit(
    content: DocText,
    following: R | None,
    read: Callable[[R], DocText | None],
    within: History | None,
) -> Hit | None:
    """The message after one that ends with a question, in the same history: the answer, mostly."""
    if following is None or (within is not None and following.seq not in within.seqs):
        return None
    answer = read(following)
    if answer is None or answer.is_own or answer.before != content.history:
        return None
    return hit_at(following, answer, 0, 0.0)


def asks(doc: Row, content: DocText) -> bool:
    """Whether a row is a message that ends with a question."""
    # Quotation marks and the like may follow the question's own.
    return doc.output_id is None and bool(_QUESTION.search(content.text[-40:]))


def hit_at(doc: Row, content: DocText, at: int, score: float) -> Hit:
    """The hit at character `at` of a row's text."""
    is_message = doc.output_id is None
    start, stop = passage_span(content.text, at)
    return Hit(
        pointer=doc.output_id or f"transcript://{doc.session_id}/messages/{doc.seq}-{doc.seq}",
        kind="message" if is_message else "output",
        session_id=doc.session_id,
        head=content.history[:HEAD_CHARS],
        seq=doc.seq,
        role=content.role,
        tool_name=content.tool,
        timestamp_seconds=doc.seconds,
        snippet=content.text[start:stop],
        offset_chars=doc.start_char + at,
        line=None if is_message else doc.start_line + content.text.count("\n", 0, at),
        score=score,
        snippet_chars_before=at - start,
        size_chars=len(content.text) if is_message else None,
    )

"""Hits: which rows of a ranking are shown, and what a hit contains."""

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence

from context_compaction.archive import History, Hit
from context_compaction.archive.local.search.index import Doc, DocText, SearchIndex
from context_compaction.archive.snippets import passage_span
from context_compaction.messages.history_hash import HEAD_CHARS

MAX_HITS_PER_OUTPUT = 3

_DOCS_A_READ = 200
_QUESTION = re.compile(r"[?？؟][\W_]*\Z")
_LAST_CHARS = 40  # of a text, that may be quotation marks and the like behind the question's own


def grouped(
    index: SearchIndex, connection: sqlite3.Connection, ids: Sequence[int], count: int
) -> Iterator[Doc]:
    """The first `count` rows of `ids`, with at most `MAX_HITS_PER_OUTPUT` of any one output."""
    groups = Groups()
    start, stop = 0, count  # mostly nothing is left out, and no more rows are needed
    while start < len(ids):
        for doc in index.docs(connection, ids[start:stop]):
            if not groups.has_room(doc):
                continue
            yield doc
            count -= 1
            if not count:
                return
        start, stop = stop, stop + _DOCS_A_READ


class Groups:
    """Counts the rows shown of each output."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str], int] = {}

    def has_room(self, doc: Doc) -> bool:
        """Count a row; False where its output has had its share."""
        if doc.output_id is None:
            return True
        group = (doc.session_key, doc.output_id)
        self._shown[group] = self._shown.get(group, 0) + 1
        return self._shown[group] <= MAX_HITS_PER_OUTPUT


def next_hit(
    index: SearchIndex,
    connection: sqlite3.Connection,
    doc: Doc,
    content: DocText,
    read: Callable[[Doc], DocText | None],
    within: History | None,
) -> Hit | None:
    """The message after one that ends with a question, in the same history: the answer, mostly."""
    if doc.output_id is not None or not _QUESTION.search(content.text[-_LAST_CHARS:]):
        return None
    following = index.next_doc(connection, doc)
    if following is not None and within is not None and following.seq not in within.seqs:
        return None
    answer = None if following is None else read(following)
    if following is None or answer is None or answer.is_own or answer.before != content.history:
        return None
    return hit_at(following, answer, 0, 0.0)


def hit_at(doc: Doc, content: DocText, at: int, score: float) -> Hit:
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

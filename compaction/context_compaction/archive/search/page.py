"""One page of an answer: words ranked or newest first, and phrases, whatever index they are in.

A query is never handed to an index as it is, so no text of a user is a syntax error.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

from anyio import from_thread

from context_compaction.archive import Archive, History, Hit, Query, SearchPage
from context_compaction.archive.search.filters import (
    Filter,
    decode_cursor,
    encode_cursor,
    filter_of,
)
from context_compaction.archive.search.hits import (
    READ_ROWS,
    Locator,
    R,
    asks,
    diversify,
    grouped,
    hit_at,
    next_hit,
)
from context_compaction.archive.search.patterns import SCAN_SECONDS, Batch, newest_batch, scan
from context_compaction.archive.search.word_search import Ranker, Rows
from context_compaction.archive.tokenizer import QueryTerm, phrase_term, query_terms
from context_compaction.errors import QueryError

RowsOf: TypeAlias = Callable[[Filter], Rows[Any]]
Check: TypeAlias = Callable[[], None]

# What tools put before a line: its number, or the sign of a patch.
_LINE_START = re.compile(r"\s*(?:\d{1,7}[\t→|:]|[-+])?\s*")


class _Shown(NamedTuple):
    """A message among the hits: its place, who speaks, its text, and the line that matches."""

    place: int
    role: str
    text: str
    line: str


async def search(archive: Archive, query: Query) -> SearchPage:
    """See `Archive.search`.

    Raises:
        QueryError: The query holds no word or takes too long, or a filter, the limit or the cursor
            cannot be used.
        NotFoundError: There is no such session, or no such history in it.
    """
    allowed = filter_of(query)
    if query.head is not None and query.session_id is not None:
        allowed = replace(allowed, within=await archive.history(query.session_id, query.head))
    if query.kind == "regex":

        async def read_batch(last_id: int) -> Batch:
            rest = replace(allowed, last_id=last_id)
            return await archive.on_rows(
                lambda rows_of, _: newest_batch(rows_of(rest), query.text),
                lambda: lambda: None,  # a scan has a time of its own
            )

        return await scan(query, allowed.last_id, read_batch)
    terms_of_query(query)  # refused before anything is read

    def work(rows_of: RowsOf, check: Check) -> SearchPage:
        everything = rows_of(allowed.everything)
        return words_page(query, rows_of(allowed), everything, allowed.within, check)

    return await archive.on_rows(work, partial(_time_limit, query))


def _time_limit(query: Query) -> Check:
    until_seconds = monotonic() + SCAN_SECONDS

    def check() -> None:
        from_thread.check_cancelled()
        if monotonic() > until_seconds:
            raise QueryError(
                f"The search for {query.text[:80]!r} took more than {SCAN_SECONDS:.0f} seconds and "
                "was stopped. Give fewer or rarer words, or a session_id."
            )

    return check


def words_page(
    query: Query, rows: Rows[R], everything: Rows[R], within: History | None, check: Check
) -> SearchPage:
    """See `Archive.search`, for a query of words or a phrase.

    Args:
        query: What is looked for.
        rows: What its filters let through, up to the row that its cursor names.
        everything: All rows.
        within: The history that it names.
        check: Called again and again; what it raises ends the search.
    """
    cursor = decode_cursor(query.cursor) if query.cursor else None
    terms = terms_of_query(query)
    ranker = Ranker(rows, check)
    ranking = ranker.newest(terms) if query.order == "recent" else ranker.best(terms, query.text)
    anywhere = Ranker(everything, check)
    elsewhere = [term for term in ranking.missing_terms if anywhere.is_found(term)]
    # A forged cursor may name any number.
    offset = min(max(0, int(cursor[0])), len(ranking.ids)) if cursor else 0
    locator = Locator(terms)
    ids = ranking.ids
    chosen: dict[int, int] = {}
    if query.order == "relevance" and len(terms) == 1 and len(terms[0].runs) == 1:
        chosen = _varied(terms[0].runs[0], ranker, locator, rows.docs(ids[:READ_ROWS]))
        ids = [*chosen, *(doc_id for doc_id in ids if doc_id not in chosen)]
    is_prefix = all(term.is_prefix for term in terms)
    hits: list[Hit] = []
    # By session and passage, the hits that show it.
    places: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    messages: dict[tuple[str, int], _Shown] = {}
    has_more, stop = False, offset
    for doc in islice(grouped(rows.docs, ids, offset + query.limit + 1), offset, None):
        if len(hits) == query.limit or stop == offset + query.limit + 200:
            has_more = True
            break
        stop += 1
        content = ranker.read(doc)
        at = chosen.get(doc.doc_id)
        if content is not None and at is None:
            at = locator.find(content.text)
        # A prefix is looked for by stems, which other words may share.
        if content is None or (at is None and is_prefix):
            continue
        hit = hit_at(doc, content, at or 0, ranking.scores.get(doc.doc_id, 0.0))
        equal = places[hit.session_id, hit.snippet]
        line = content.text[content.text.rfind("\n", 0, at or 0) + 1 :].partition("\n")[0]
        shown = _Shown(len(hits), hit.role, content.text, _LINE_START.sub("", line, count=1))
        same = None
        if hit.kind == "message" and query.order == "relevance":
            # Two messages of a page may show the same: each may answer another call.
            same = equal[0] if len(equal) == 2 else _same_change(hit, shown, messages)
        if same is not None:
            hits[same] = replace(hits[same], repeats=hits[same].repeats + 1)
            continue
        messages[hit.session_id, hit.seq] = shown
        equal.append(len(hits))
        following = rows.next_doc(doc) if asks(doc, content) else None
        hits.append(replace(hit, next=next_hit(content, following, ranker.read, within)))
    newest = max(ranking.ids) if cursor is None and has_more else cursor[1] if cursor else 0
    return SearchPage(
        tuple(hits),
        len(ranking.ids),
        ranking.is_exact,
        encode_cursor([stop, newest]) if has_more else None,
        tuple(" ".join(term.runs) for term in ranking.missing_terms if term not in elsewhere),
        tuple(" ".join(term.runs) for term in elsewhere),
        ranking.has_any,
    )


def _same_change(hit: Hit, shown: _Shown, others: Mapping[tuple[str, int], _Shown]) -> int | None:
    """The hit whose change is the one of `hit`, if one is a call and the other its result.

    Tools that edit files answer with the lines that the call wrote.
    """
    step = {"assistant": 1, "tool": -1}.get(hit.role)
    other = others.get((hit.session_id, hit.seq + step)) if step else None
    if other is None or {hit.role, other.role} != {"assistant", "tool"}:
        return None
    call, result = (shown, other) if hit.role == "assistant" else (other, shown)
    return other.place if result.line and result.line in call.text else None


def terms_of_query(query: Query) -> list[QueryTerm]:
    """What a query of words or a phrase looks for.

    Raises:
        QueryError: It holds no word.
    """
    if query.kind == "phrase":
        phrase = phrase_term(query.text)
        terms = [] if phrase is None else [phrase]
    else:
        terms = query_terms(query.text)
    if not terms:
        raise QueryError(
            f"The query {query.text[:80]!r} holds no letter or digit. "
            "Give a word, or use kind='regex' to look for other characters."
        )
    return terms


def _varied(word: str, ranker: Ranker[R], locator: Locator, docs: Sequence[R]) -> dict[int, int]:
    """The rows that show different names with the one word asked for, and which place of each."""
    read = [(doc.doc_id, ranker.read(doc)) for doc in docs]
    texts = [(row, text.text, locator.places(text.text)) for row, text in read if text is not None]
    return diversify(word, texts)

"""The full-text tables: one for every `PARTITION_ROWS` rows, so that no query walks all rows.

BM25 counts how many rows hold a word by walking all of them (FACTS part 2, 2.3b). A table of its
own for each share of the rows bounds that walk: a common word is answered by the newest table, a
rare one costs one look-up in each. Row ids are dense, since each word's list of rows keeps the
differences between ids: ids with gaps cost four bytes more for every word of every message.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from context_compaction.archive.tokenizer import QueryTerm, stems_of_prefix

PARTITION_ROWS = 131_072
DAY_SECONDS = 86_400
DAYS_A_BLOCK = 32
MAX_DAY = 1 << 17  # the year 2328; a time filter past it means no limit

# Words that FTS5 gathers before it writes them, 1 MB by default. Room for a whole transaction
# saves a quarter of its time, which goes into merging, and a tenth of the size (measured).
UNWRITTEN_BYTES = 16 * 1024 * 1024

# Rows whose log proved to be other than indexed keep their id, so that it is not given to another
# text while the full-text table still knows the old one. This number of a segment marks them, ...
NO_SEGMENT = 0
HAS_DEAD_ROWS = "dead rows"  # ... and this key of `meta` says that there are any

FILLER = "z"  # a token that no query asks for in its column
OWN = "own"  # the token of what our own tools were asked and answered

# Whether a row is one of `Filter.ids`, which are the fourth parameter.
IN_HISTORY = "(?4 IS NULL OR rowid IN (SELECT value FROM json_each(?4)))"

TermsRow = tuple[int, str, str, str, str]

PARTITION_SCHEMA = """
CREATE TABLE fts_partition (
    id INTEGER PRIMARY KEY, doc_count INTEGER NOT NULL, min_seconds REAL, max_seconds REAL
);
"""


@dataclass(frozen=True, slots=True)
class Partition:
    """One full-text table."""

    number: int
    doc_count: int
    min_seconds: float
    max_seconds: float

    @property
    def table(self) -> str:
        """The table's name."""
        return f"fts_{self.number}"


@dataclass(frozen=True, slots=True)
class Filter:
    """What a row must be.

    Attributes:
        tokens: Alternatives; of each tuple a row must have at least one.
        expression: A further FTS5 expression, or empty.
        without_own: Whether what our own tools were asked and answered is left out. It is rare, so
            a filter of nothing else counts as open.
        last_id: The highest row id.
        ids: The rows of one history, as a JSON list; None for all rows.
        since_seconds: Its earliest time, in Unix time; tokens hold days only.
        until_seconds: Its latest time.
        has_dead_rows: Whether some rows are of a log that has gone, so that each is looked at.
    """

    tokens: tuple[tuple[str, ...], ...] = ()
    expression: str = ""
    without_own: bool = False
    last_id: int = (1 << 63) - 1
    ids: str | None = None
    since_seconds: float = -inf
    until_seconds: float = inf
    has_dead_rows: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it lets every word's rows through."""
        return not self.tokens and not self.expression and self.ids is None

    def match(self, expression: str) -> str:
        """An FTS5 expression for `expression` (may be empty) under this filter."""
        groups = [" OR ".join(f'"{token}"' for token in group) for group in self.tokens]
        meta = [f"meta : ({group})" for group in groups]
        every = " AND ".join(f"({part})" for part in (expression, self.expression, *meta) if part)
        return f'({every}) NOT (meta : "{OWN}")' if every and self.without_own else every

    def living(self, connection: sqlite3.Connection, ids: Sequence[int]) -> list[int]:
        """Those of `ids` that the log holds, between the two times, in their order."""
        if (self.since_seconds, self.until_seconds) == (-inf, inf) and not self.has_dead_rows:
            return list(ids)
        rows = connection.execute(
            "SELECT id FROM doc WHERE id IN (SELECT value FROM json_each(?))"
            " AND segment != ? AND seconds BETWEEN ? AND ?",
            (json.dumps(ids), NO_SEGMENT, self.since_seconds, self.until_seconds),
        )
        kept = {doc_id for (doc_id,) in rows}
        return [doc_id for doc_id in ids if doc_id in kept]


def role_token(role: str) -> str:
    """The token of the rows of a role."""
    return "r" + role


def session_token(session: int) -> str:
    """The token of the rows of a session, given its row id."""
    return f"s{session}"


def time_tokens(seconds: float) -> tuple[str, str]:
    """The tokens of a row's day, and of its block of days."""
    day = _day(seconds)
    return f"d{day}", f"b{day // DAYS_A_BLOCK}"


def time_range_tokens(since_seconds: float, until_seconds: float) -> tuple[str, ...]:
    """Tokens of which each row between two times has at least one: whole blocks, and days."""
    day, last = _day(since_seconds), _day(until_seconds)
    tokens: list[str] = []
    while day <= last:
        if day % DAYS_A_BLOCK == 0 and day + DAYS_A_BLOCK - 1 <= last:
            tokens.append(f"b{day // DAYS_A_BLOCK}")
            day += DAYS_A_BLOCK
        else:
            tokens.append(f"d{day}")
            day += 1
    return tuple(tokens)


def expression_of(term: QueryTerm) -> str:
    """The FTS5 expression of a term; its words are letters and digits only, so quotes are safe."""
    columns = "words" if len(term.words) > 1 else "{words parts}"
    if not term.is_prefix:
        return f'({columns} : "{" ".join(term.words)}")'
    *before, last = list(term.words)
    expressions = [f'({columns} : "{" ".join(term.words)}" *)']
    # What is indexed is the stem, which may be shorter than the prefix, or end otherwise.
    expressions += [
        f'({columns} : "{" ".join([*before, stem])}")' for stem in stems_of_prefix(last)
    ]
    return f"({' OR '.join(expressions)})"


def path_expression(path: QueryTerm) -> str:
    """The FTS5 expression of rows that name a path, or answer a call that did."""
    return f'({{words paths}} : "{" ".join(path.words)}")'


def load_partitions(connection: sqlite3.Connection) -> list[Partition]:
    """All tables that hold rows, the newest first."""
    rows = connection.execute(
        "SELECT id, doc_count, min_seconds, max_seconds FROM fts_partition WHERE doc_count > 0"
        " ORDER BY id DESC"
    )
    return [Partition(*row) for row in rows]


def insert_terms(
    connection: sqlite3.Connection, rows: Sequence[TermsRow], seconds: Sequence[float]
) -> None:
    """Add rows (id, words, parts, meta, paths), ids rising, to the newest table or a new one."""
    if not rows:
        return
    found = connection.execute("SELECT max(id), doc_count FROM fts_partition").fetchone()
    number, count = (0, PARTITION_ROWS) if found[0] is None else found
    if count >= PARTITION_ROWS:
        if number:
            # One segment answers a rare word with one look-up.
            connection.execute(f"INSERT INTO fts_{number} (fts_{number}) VALUES ('optimize')")  # noqa: S608
        number += 1
        connection.execute(
            f"CREATE VIRTUAL TABLE fts_{number}"
            " USING fts5 (words, parts, meta, paths, content='', tokenize='ascii')"
        )
        connection.execute(
            f"INSERT INTO fts_{number} (fts_{number}, rank) VALUES ('hashsize', ?)",  # noqa: S608
            (UNWRITTEN_BYTES,),
        )
        connection.execute("INSERT INTO fts_partition VALUES (?, 0, NULL, NULL)", (number,))
    connection.executemany(
        f"INSERT INTO fts_{number} (rowid, words, parts, meta, paths)"  # noqa: S608
        " VALUES (?, ?, ?, ?, ?)",
        rows,
    )
    connection.execute(
        "UPDATE fts_partition SET doc_count = doc_count + ?,"
        " min_seconds = min(coalesce(min_seconds, ?2), ?2),"
        " max_seconds = max(coalesce(max_seconds, ?3), ?3) WHERE id = ?4",
        (len(rows), min(seconds), max(seconds), number),
    )


def newest_ids(
    connection: sqlite3.Connection,
    partitions: Sequence[Partition],
    allowed: Filter,
    expression: str,
    limit: int,
) -> list[int]:
    """The last `limit` rows that match, last first; `allowed.living` is still to be applied."""
    ids: list[int] = []
    for partition in partitions:
        ids += _ids(connection, partition, allowed, expression, limit - len(ids))
        if len(ids) >= limit:
            break
    return ids


def _ids(
    connection: sqlite3.Connection,
    partition: Partition,
    allowed: Filter,
    expression: str,
    limit: int,
) -> Iterator[int]:
    rows = connection.execute(
        f"SELECT rowid FROM {partition.table} WHERE {partition.table} MATCH ?1 AND rowid <= ?2"  # noqa: S608
        f" AND {IN_HISTORY} ORDER BY rowid DESC LIMIT ?3",
        (allowed.match(expression), allowed.last_id, limit, allowed.ids),
    )
    return (doc_id for (doc_id,) in rows)


def _day(seconds: float) -> int:
    return int(min(max(seconds // DAY_SECONDS, 0), MAX_DAY))

"""Taking rows out of the search index with all their words, so that nothing of them is left.

A full-text table without contents forgets a row only when it is told every word of it again. The
text is gone by then, and to derive the words anew would have to give exactly what an older version
or another cut of the log gave. So they are read from the table itself: `fts5vocab` lists every
word of every row. One session of 40 costs a quarter to a third of making the index anew (measured
by benchmarks/archive_faults.py), nearly all of it for the list, so many at once cost little more.
"""

import sqlite3
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from context_compaction.archive.local.log import session_folder
from context_compaction.archive.local.search.ingest import NO_SEGMENT


def holds_deleted_session(connection: sqlite3.Connection, root: Path) -> bool:
    """Whether a session is deleted whose words are still here: the deletion was killed between.

    Rows that a power loss made stale are no reason: their session is still there, and nobody asked
    for their words to go.
    """
    rows = connection.execute(
        "SELECT key FROM session"
        " WHERE NOT EXISTS (SELECT 1 FROM segment WHERE segment.session = session.id)"
    )
    return any(not session_folder(root, key).exists() for (key,) in rows)


def is_mostly_dead(connection: sqlite3.Connection) -> bool:
    """Whether making the index anew costs less than taking its dead rows out."""
    dead, all_rows = connection.execute(
        "SELECT count(*) FILTER (WHERE segment = ?), count(*) FROM doc", (NO_SEGMENT,)
    ).fetchone()
    return int(dead) * 2 > int(all_rows)


def remove_dead_rows(connection: sqlite3.Connection) -> None:
    """Remove the rows that no segment holds any more, within the transaction that is open.

    Their bytes are overwritten only when the file is written anew.
    """
    for (number,) in connection.execute("SELECT id FROM fts_partition").fetchall():
        count = _forget_words(connection, f"fts_{number}")
        connection.execute(
            "UPDATE fts_partition SET doc_count = doc_count - ? WHERE id = ?", (count, number)
        )
    connection.execute(
        "DELETE FROM part WHERE id IN (SELECT id FROM doc WHERE segment = ?)", (NO_SEGMENT,)
    )
    connection.execute("DELETE FROM doc WHERE segment = ?", (NO_SEGMENT,))
    connection.execute("DELETE FROM session WHERE id NOT IN (SELECT session FROM segment)")


def _forget_words(connection: sqlite3.Connection, table: str) -> int:
    """Take the dead rows out of one full-text table; how many those were."""
    dead = (
        f"SELECT id FROM doc WHERE segment = {NO_SEGMENT}"  # noqa: S608
        f" AND id IN (SELECT id FROM {table}_docsize)"
    )
    first, last, count = connection.execute(
        f"SELECT min(id), max(id), count(*) FROM ({dead})"  # noqa: S608
    ).fetchone()
    if not count:
        return 0
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info ({table})")]
    marks = ", ".join("?" * len(columns))
    # In their order, which stands for their places. It is sorted as a whole before the first row
    # comes out, so that nothing is read from the table while it is written to.
    words = connection.execute(
        f"SELECT doc, col, term FROM {_vocabulary(connection, table)}"  # noqa: S608
        f" WHERE doc BETWEEN ? AND ? AND doc IN ({dead}) ORDER BY doc, offset",
        (first, last),
    )
    connection.executemany(
        f"INSERT INTO {table} ({table}, rowid, {', '.join(columns)})"  # noqa: S608
        f" VALUES ('delete', ?, {marks})",
        _rows(words, columns),
    )
    # Until its segments are merged, the table keeps both the words and the note that they are gone.
    connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")  # noqa: S608
    return int(count)


def _vocabulary(connection: sqlite3.Connection, table: str) -> str:
    """The name of a table that lists the words of `table`, known to this connection only."""
    name = f"temp.{table}_words"
    connection.execute(
        f"CREATE VIRTUAL TABLE IF NOT EXISTS {name} USING fts5vocab ('main', '{table}', 'instance')"
    )
    return name


def _rows(words: sqlite3.Cursor, columns: list[str]) -> Iterator[tuple[int | str, ...]]:
    """Each row's id and, by column, its words."""
    for doc_id, group in groupby(words, key=itemgetter(0)):
        by_column: dict[str, list[str]] = {column: [] for column in columns}
        for _, column, word in group:
            by_column[column].append(word)
        yield (doc_id, *(" ".join(by_column[column]) for column in columns))

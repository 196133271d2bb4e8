"""Whether a passage is the old text of an edit or the new one, and still in the file."""

import posixpath
from collections.abc import Sequence

from anyio import to_thread
from context_compaction.activity import file_changes as change
from context_compaction.activity.replayed_file import ReplayedFile
from context_compaction.activity.tool_kinds import classify
from context_compaction.archive import Archive, Hit
from context_compaction.messages.model import Message, tool_calls

from mcp_server_compaction.reading.file_states import replayed_session

# A line shorter than this stands in many places of a file.
_TELLING_CHARS = 8
# Of a session so many are replayed at each search: some 0.2 seconds for 2.7 million tokens.
_NEWEST_MESSAGES = 2_000


async def edit_marks(archive: Archive, hits: Sequence[Hit]) -> dict[int, str]:
    """By position in `hits`, what to know of those that show an edit or a text written to a file.

    Only for the session that most of `hits` are of: its newest calls are replayed, once. What they
    do not tell of a file is not known.
    """
    edits = [hit for hit in hits if hit.role == "assistant" and hit.tool_name]
    if not edits:
        return {}
    sessions = [hit.session_id for hit in edits]
    session_id = max(sessions, key=sessions.count)
    messages, seqs, files = await replayed_session(archive, session_id, _NEWEST_MESSAGES)
    by_seq = dict(zip(seqs, messages, strict=True))

    def marks() -> dict[int, str]:
        found = (
            (n, _mark(by_seq[hit.seq], hit, files))
            for n, hit in enumerate(hits)
            if hit in edits and hit.session_id == session_id and hit.seq in by_seq
        )
        return {n: mark for n, mark in found if mark}

    return await to_thread.run_sync(marks)


def _mark(message: Message, hit: Hit, files: dict[str, ReplayedFile]) -> str:
    line = _matched_line(hit)
    if len(line) < _TELLING_CHARS:
        return ""
    for call in tool_calls(message):
        for made in change.changes_of(call, classify(call)):
            old, new = _sides(made)
            if line in old or line in new:
                return _told(made.path, line, old, new, files.get(made.path))
    return ""


def _matched_line(hit: Hit) -> str:
    """The line of the match, as far as the passage shows it."""
    at = hit.snippet_chars_before
    start = hit.snippet.rfind("\n", 0, at) + 1
    stop = hit.snippet.find("\n", at)
    return hit.snippet[start : stop if stop >= 0 else len(hit.snippet)].strip()


def _sides(made: change.FileChange) -> tuple[str, str]:
    match made:
        case change.Replaces(_, old, new):
            return old, new
        case change.Writes(_, text) | change.Inserts(_, _, text):
            return "", text
        case change.Patches(_, hunks):
            return (
                "\n".join(row for hunk in hunks for row in hunk.old),
                "\n".join(row for hunk in hunks for row in hunk.new),
            )
        case _:
            return "", ""


def _told(path: str, line: str, old: str, new: str, file: ReplayedFile | None) -> str:
    side = "Text" if line in old and line in new else "Old text" if line in old else "New text"
    if file is None or (file.text is None and not file.is_deleted):
        stands = "whether it stands is not known"
    elif file.is_deleted:
        stands = "file gone since"
    elif line in (file.text or ""):
        stands = "stands at the end"
    else:
        stands = "gone by the end"
    doubt = ", unsure" if file and file.doubt else ""
    return f"{side} of {posixpath.basename(path)}, {stands}{doubt}."

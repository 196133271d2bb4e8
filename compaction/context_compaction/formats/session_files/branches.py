"""Branches of a session file: the messages that the user took back, and those that are live.

Claude Code's rewind starts a second branch of the tree that `parentUuid` makes. Parallel calls and
missing parents split that tree too. So only a prompt of the user starts a branch here, and a prompt
whose parent is unknown continues the prompt before it.
"""

from collections.abc import Sequence

from context_compaction.formats.parsing import object_or_none, objects_in, text_or_none
from context_compaction.formats.session_files.model import Row

# Each branch repeats the messages before its fork. A file with more branches gives all its rows in
# their order instead, so that the work stays linear.
MAX_BRANCHES = 20
# Rows of the host's that look like prompts.
_NO_PROMPTS = ("[Request interrupted", "<local-command-", "<bash-std")


def claude_code_branches(rows: Sequence[Row]) -> list[Sequence[Row]]:
    """The rows of each branch of a Claude Code file, the live branch last."""
    has_one_root = _has_one_root(rows)
    owners: dict[str, int] = {}  # by uuid: the position of the prompt that the row belongs to
    row_owners: list[int] = []
    parents: dict[int, int] = {}  # by the position of a prompt: the prompt that it continues
    last = -1
    for position, row in enumerate(rows):
        parent = row.value.get("parentUuid")
        owner = owners.get(parent, last) if isinstance(parent, str) else last
        if _is_prompt(row):
            parents[position] = -1 if parent is None and has_one_root else owner
            owner = last = position
        uuid = text_or_none(row.value.get("uuid"))
        if uuid is not None:
            owners[uuid] = owner
        row_owners.append(owner)
    continued = set(parents.values())
    ends = [position for position in parents if position not in continued]
    if len(ends) < 2:
        return [rows]
    branches: list[Sequence[Row]] = [
        [row for row, owner in zip(rows, row_owners, strict=True) if owner in live]
        for live in (_chain(end, parents) for end in _first_and_last(ends))
    ]
    return branches if len(ends) <= MAX_BRANCHES else [rows, branches[-1]]


def _first_and_last(ends: list[int]) -> list[int]:
    return ends if len(ends) <= MAX_BRANCHES else ends[-1:]


def _chain(end: int, parents: dict[int, int]) -> set[int]:
    chain = {-1}
    while end >= 0:
        chain.add(end)
        end = parents[end]
    return chain


def _has_one_root(rows: Sequence[Row]) -> bool:
    """Whether a prompt without a parent starts again from the beginning.

    Where other messages have no parent either, the host did not write the tree.
    """
    return all(
        row.value.get("parentUuid") is not None or _is_prompt(row)
        for row in rows
        if row.value.get("type") in ("user", "assistant") and not _is_hosts(row)
    )


def _is_hosts(row: Row) -> bool:
    return any(row.value.get(mark) for mark in ("isMeta", "isCompactSummary", "isSidechain"))


def _is_prompt(row: Row) -> bool:
    """Whether the user typed the row, and it has a place in the tree."""
    value = row.value
    if value.get("type") != "user" or "parentUuid" not in value or _is_hosts(row):
        return False
    content = (object_or_none(value.get("message")) or {}).get("content")
    blocks = objects_in(content)
    text = content if isinstance(content, str) else (blocks[0].get("text") if blocks else "")
    is_answer = any(block.get("type") == "tool_result" for block in blocks)
    return not is_answer and not str(text).startswith(_NO_PROMPTS)


def claude_code_needs_whole(rows: Sequence[Row]) -> bool:
    """Whether rows from the middle of a file fork, or a prompt continues a row before them."""
    known: set[str] = set()
    is_first = True
    for row in rows:
        parent = row.value.get("parentUuid")
        # The first message was the last one of the rows before, or continues them.
        if _is_prompt(row) and not is_first and parent not in known:
            return True
        is_first &= row.value.get("type") not in ("user", "assistant")
        known.add(text_or_none(row.value.get("uuid")) or "")
    return len(claude_code_branches(rows)) > 1


def codex_branches(rows: Sequence[Row]) -> list[Sequence[Row]]:
    """The rows of a Codex rollout up to each rollback, and all of them last."""
    cuts = [index for index, row in enumerate(rows) if rolled_back_turns(row)]
    if len(cuts) > MAX_BRANCHES:
        return [[row for row in rows if not rolled_back_turns(row)], rows]
    return [*(rows[:cut] for cut in cuts), rows]


def rolled_back_turns(row: Row) -> int:
    """How many turns the user took back in this row of a Codex rollout."""
    payload = object_or_none(row.value.get("payload")) or {}
    turns = payload.get("num_turns")
    is_rollback = row.value.get("type") == "event_msg"
    is_rollback &= payload.get("type") == "thread_rolled_back"
    return turns if is_rollback and isinstance(turns, int) and turns > 0 else 0

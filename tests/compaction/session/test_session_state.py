"""What one call leaves for later ones: read as it was written, and as earlier versions wrote it."""

import json
from typing import Any

from context_compaction.activity.read_state import FileState
from context_compaction.session.state import (
    Filling,
    ModelCall,
    Rejection,
    SavedSummary,
    SessionState,
    before,
    made_by,
    state_of,
    with_state,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.support.json_types import Json

NUMBERS = st.integers(0, 10**6)
FILES = st.builds(
    FileState, st.text(), st.text(), NUMBERS, st.text(), st.text(), st.floats(0, 1e9), st.booleans()
)
STATES = st.builds(
    SessionState,
    stop_seq=st.integers(-1, 10**6),
    files=st.none() | st.lists(FILES, max_size=3).map(tuple),
    filling=st.none() | st.builds(Filling, NUMBERS, st.integers(-(10**6), 10**6)),
    rejection=st.none() | st.builds(Rejection, st.text(), st.none() | st.text(), NUMBERS),
    memory=st.none()
    | st.builds(SavedSummary, st.text(), NUMBERS, NUMBERS, st.text(), st.text(), NUMBERS),
    model=st.none() | st.builds(ModelCall, st.floats(0, 1e9), st.booleans()),
    made=st.lists(st.text(), max_size=3).map(tuple),
    repeat_key=st.text(),
)
OLDER: Json = {
    "status": "compacted",
    "tokens": {"trigger": 900, "after": 300},
    "stop_seq": 7,
    "read_state": [
        {
            "path": "a.py",
            "range": "",
            "seq": 3,
            "seen_sha256": "s",
            "disk_sha256": "d",
            "modified_seconds": 1.5,
            "is_changed": False,
            "told_sha256": "",
        }
    ],
    "refill": {"turns": 2, "tokens": 500, "room_tokens": 400, "streak": 2, "sources": []},
    "reactive": {"request": "q", "result": "r", "result_tokens": 300, "versions": 1},
    "model": {"requested": True, "at_seconds": 12, "failure": "timeout"},
    "memory": {
        "text": "So far.",
        "start_seq": 0,
        "stop_seq": 6,
        "writer": "host",
        "instructions": "",
        "at_seconds": 12,
    },
    "made": ["h1", "h2"],
    "repeat_key": "k",
}


@given(STATES)
def test_a_state_is_read_as_it_was_written(state: SessionState) -> None:
    archived = json.loads(json.dumps(with_state({"status": "compacted"}, state)))
    assert archived["status"] == "compacted"
    assert state_of(archived) == state


def test_a_receipt_from_before_there_was_a_state_is_read_whole() -> None:
    assert state_of(OLDER) == SessionState(
        version=0,
        stop_seq=7,
        files=(FileState("a.py", "", 3, "s", "d", 1.5, False),),
        filling=Filling(2, 600),
        rejection=Rejection("q", "r", 300),
        memory=SavedSummary("So far.", 0, 6, "host", "", 12),
        model=ModelCall(12, failed=True),
        made=("h1", "h2"),
        repeat_key="k",
    )


def test_a_model_that_nobody_asked_is_no_call_of_it() -> None:
    assert state_of({"model": {"requested": False, "waits_seconds": 3}}).model is None
    assert state_of({}) == SessionState(version=0)


@given(STATES, st.text(min_size=1).filter(lambda name: not hasattr(SessionState(), name)))
def test_what_a_later_version_adds_is_passed_over(state: SessionState, name: str) -> None:
    archived: dict[str, Any] = with_state({}, state)
    archived["state"] |= {name: 1, "version": 2}
    for part in ("filling", "rejection", "memory", "model"):
        if part in archived["state"]:
            archived["state"][part] |= {f"{name}_of_2": 1}
    found = state_of(archived)
    assert found.version == 2
    assert (found.files, found.memory, found.made) == (state.files, state.memory, state.made)


@given(st.lists(STATES, max_size=4), st.integers(-1, 10**6))
def test_only_states_of_shorter_lists_are_known(states: list[SessionState], stop_seq: int) -> None:
    known = before(states, stop_seq)
    assert all(state.stop_seq < stop_seq for state in known)
    assert len(known) == sum(state.stop_seq < stop_seq for state in states)
    assert made_by(known) <= made_by(states)

"""What one call leaves for later ones: read as it was written."""

import json

from context_compaction.activity.read_state import FileState
from context_compaction.session.state import (
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

NUMBERS = st.integers(0, 10**6)
FILES = st.builds(
    FileState, st.text(), st.text(), NUMBERS, st.text(), st.text(), st.floats(0, 1e9), st.booleans()
)
STATES = st.builds(
    SessionState,
    stop_seq=st.integers(-1, 10**6),
    files=st.none() | st.lists(FILES, max_size=3).map(tuple),
    rejection=st.none() | st.builds(Rejection, st.text(), st.none() | st.text(), NUMBERS),
    memory=st.none()
    | st.builds(SavedSummary, st.text(), NUMBERS, NUMBERS, st.text(), st.text(), NUMBERS),
    model=st.none() | st.builds(ModelCall, st.floats(0, 1e9), st.booleans()),
    made=st.lists(st.text(), max_size=3).map(tuple),
    repeat_key=st.text(),
)


@given(STATES)
def test_a_state_is_read_as_it_was_written(state: SessionState) -> None:
    archived = json.loads(json.dumps(with_state({"status": "compacted"}, state)))
    assert archived["status"] == "compacted"
    assert state_of(archived) == state


def test_a_receipt_without_a_state_left_nothing() -> None:
    assert state_of({"status": "compacted"}) == SessionState()


@given(st.lists(STATES, max_size=4), st.integers(-1, 10**6))
def test_only_states_of_shorter_lists_are_known(states: list[SessionState], stop_seq: int) -> None:
    known = before(states, stop_seq)
    assert all(state.stop_seq < stop_seq for state in known)
    assert len(known) == sum(state.stop_seq < stop_seq for state in states)
    assert made_by(known) <= made_by(states)

"""The state that a call saves for later calls."""

import json

import pytest
from context_compaction.activity.known_file import FileState
from context_compaction.compaction_state import (
    CompactionState,
    ModelCall,
    Rejection,
    SavedSummary,
    states_of,
    with_state,
)
from context_compaction.errors import ArchiveError
from hypothesis import given
from hypothesis import strategies as st

NUMBERS = st.integers(0, 10**6)
FILES = st.builds(
    FileState, st.text(), st.text(), NUMBERS, st.text(), st.text(), st.floats(0, 1e9), st.booleans()
)
STATES = st.builds(
    CompactionState,
    stop_seq=st.integers(-1, 10**6),
    files=st.none() | st.lists(FILES, max_size=3).map(tuple),
    rejection=st.none() | st.builds(Rejection, st.text(), st.none() | st.text(), NUMBERS),
    memory=st.none()
    | st.builds(SavedSummary, st.text(), NUMBERS, NUMBERS, st.text(), st.text(), NUMBERS),
    model=st.none() | st.builds(ModelCall, st.floats(0, 1e9), st.booleans()),
    own_hashes=st.lists(st.text(), max_size=3).map(tuple),
    repeat_key=st.text(),
)


@given(STATES)
def test_state_survives_the_archived_receipt(state: CompactionState) -> None:
    archived = json.loads(json.dumps(with_state({"status": "compacted"}, state)))
    assert archived["status"] == "compacted"
    assert states_of([archived]) == (state,)


def test_receipt_without_state_gives_the_empty_state() -> None:
    assert states_of([{"status": "compacted"}]) == (CompactionState(),)


def test_state_of_another_version_is_an_error_that_names_the_next_step() -> None:
    receipt = with_state({"status": "compacted"}, CompactionState(stop_seq=1))
    receipt["state"]["unknown"] = 1
    with pytest.raises(ArchiveError, match="another session_id"):
        states_of([receipt])

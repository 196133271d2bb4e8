"""Splices between two lists, computed by object identity."""

from context_compaction.result import Splice, apply_splices, make_splices
from hypothesis import given
from hypothesis import strategies as st


def test_a_message_that_is_equal_but_not_the_same_counts_as_changed() -> None:
    messages = [{"n": 1}, {"n": 2}, {"n": 3}]
    copy = dict(messages[1])
    assert make_splices(messages, [messages[0], copy, messages[2]]) == (Splice(1, 1, (copy,)),)


@given(st.data())
def test_applying_the_splices_gives_the_other_list(data: st.DataObject) -> None:
    before = [{"n": number} for number in range(data.draw(st.integers(0, 12)))]
    fresh = st.dictionaries(st.just("new"), st.integers(), min_size=1)
    choices = st.one_of(st.sampled_from(before), fresh) if before else fresh
    after = data.draw(st.lists(choices, max_size=16))
    splices = make_splices(before, after)
    result = apply_splices(before, splices)
    assert len(result) == len(after)
    assert all(first is second for first, second in zip(result, after, strict=True))
    stops = [splice.start + splice.delete_count for splice in splices]
    assert all(stop < later.start for stop, later in zip(stops, splices[1:], strict=False))

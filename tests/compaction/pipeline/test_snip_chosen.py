"""Messages that the caller snips, as S3 describes for the SnipTool of Claude Code."""

import json

import anyio
import pytest
from context_compaction.errors import SettingsError
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction.pipeline.test_promises import POLICY_EXAMPLES
from tests.support.json_types import Json
from tests.support.promises import check_readback, temporary_archive
from tests.support.provider_rules import problems
from tests.support.small import answered, assistant, compacted, lines, user
from tests.support.strategies import FORMATS, conversations

RULE = "Never touch the folder legacy, whatever happens."


def talk() -> list[Json]:
    return [
        user("Look at the log."),
        *answered("a", "bash", lines("a"), command="cat a.log"),
        *answered("b", "bash", lines("b"), command="cat b.log"),
        assistant("Both are clean."),
        user("Then the other one."),
        *answered("c", "bash", lines("c"), command="cat c.log"),
    ]


async def test_snip_removes_the_pair_and_marks_the_gap() -> None:
    payload = talk()
    result = await compacted(payload, snip_messages=(2, 4), session_id="s")
    note = result.messages[1]["content"]
    assert result.messages == [payload[0], user(note), *payload[5:]]
    assert result.messages[-1] is payload[-1]
    assert note.startswith("[Messages removed: 4; originals: transcript://s/messages/1-4")
    [layer] = result.layers
    assert (layer.name, layer.edit_count) == ("snip", 4)
    freed = result.tokens.before - result.tokens.after
    assert result.receipt["snip"] == {
        "messages": 4,
        "tokens_freed": layer.tokens_before - layer.tokens_after,
        "boundary_messages": [note],
    }
    assert 0 < result.receipt["snip"]["tokens_freed"] <= freed + 1
    assert result.warnings == ()


async def test_snip_keeps_protected_messages_and_warns() -> None:
    payload = talk()
    payload[0] = user(RULE)
    payload[5:5] = [user("Here is the token format, keep it: " + "t-123 " * 40)]
    named = (0, 3, 5, 7, 9)
    result = await compacted(payload, pinned_messages=(5,), snip_messages=named)
    assert payload[0] in result.messages, "a rule of the user"
    assert payload[5] in result.messages, "a pinned message"
    assert payload[7] in result.messages, "the newest request"
    assert result.messages[-1] is payload[-1], "the newest message, and its call"
    [warning] = [text for text in result.warnings if text.startswith("These snip_messages ")]
    assert warning.startswith("These snip_messages stay: 0, 5, 7, 9. ")


async def test_snip_frees_tokens_before_the_trigger_is_checked() -> None:
    payload = talk()
    recorded = await compacted(payload, mode="record", context_window=9_000, max_output_tokens=500)
    assert recorded.tokens.before > recorded.tokens.trigger
    result = await compacted(
        payload, snip_messages=(1, 3), context_window=9_000, max_output_tokens=500
    )
    assert result.layers[0].name == "snip"
    assert result.boundary is None
    assert result.fits


async def test_snip_index_outside_the_list_is_refused() -> None:
    with pytest.raises(SettingsError, match="snip_messages contains index 9, but the list has 9"):
        await compacted(talk(), snip_messages=(9,))
    with pytest.raises(SettingsError, match="snip in a separate call"):
        await compacted(talk(), snip_messages=(1,), prepare=True)


@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data())
@POLICY_EXAMPLES
def test_snip_leaves_a_valid_list_for_any_choice(format: str, data: st.DataObject) -> None:
    payload = data.draw(conversations(format))
    indices = st.sets(st.integers(0, len(payload) - 1)) if payload else st.just(set[int]())
    request = CompactRequest(
        format=format,
        session_id="s",
        context_window=1_000_000,
        snip_messages=tuple(sorted(data.draw(indices))),
    )

    async def run() -> None:
        before = json.dumps(payload)
        async with temporary_archive() as archive:
            result = await compact(payload, request, archive=archive)
            assert json.dumps(payload) == before
            assert not problems(result.messages, format, original=payload)
            await check_readback(payload, result, format, archive)
            assert {edit.index for edit in result.edits if edit.layer == "snip"} >= {
                index
                for index, message in enumerate(payload)
                if not any(message is item for item in result.messages)
                and index not in {e.index for e in result.edits if e.layer != "snip"}
            }

    anyio.run(run)

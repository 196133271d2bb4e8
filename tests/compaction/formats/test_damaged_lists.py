"""Message lists that no format fits are archived, searched and reported, but not compacted."""

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from context_compaction import CompactRequest, CompactResult, compact
from context_compaction.archive.values import Query
from context_compaction.errors import InvalidMessageError, UnknownFormatError
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction.formats.test_foreign import LIBRARIES, SHAPES
from tests.compaction.pipeline.test_promises import EXAMPLES
from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.strategies import FORMATS, conversations

NOT_COMPACTED = "archived, but not compacted"


def _without_fields(message: Json) -> Json:
    """Return the message without the field that has its content."""
    return {key: value for key, value in message.items() if key not in ("content", "parts")}


DAMAGES: list[Callable[[Json], Json]] = [*SHAPES, _without_fields]


async def _compacted(payload: Sequence[Json], **request: Any) -> tuple[CompactResult, list[Json]]:
    async with temporary_archive() as archive:
        result = await compact(payload, CompactRequest(**request), archive=archive)
        stored = await archive.read_messages(result.session_id, 0, len(payload) - 1)
        assert (await archive.search(Query("needle9"))).hits
        return result, [message.raw for message in stored]


@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data(), damage=st.sampled_from(DAMAGES))
@EXAMPLES
def test_damaged_list_is_archived_unchanged_when_no_format_fits(
    format: str, data: st.DataObject, damage: Callable[[Json], Json]
) -> None:
    conversation = data.draw(conversations(format).filter(bool))
    payload = [
        {**damage(message), "note": f"needle{9 + n}"} for n, message in enumerate(conversation)
    ]
    payload[0] = {"speaker": "user", **payload[0]}
    payload[0].pop("role", None)
    payload[0].pop("type", None)
    result, stored = anyio.run(_compacted_with(payload))
    assert stored == payload
    assert result.boundary is None
    assert result.messages == payload or result.status == "repaired"
    assert any(NOT_COMPACTED in warning for warning in result.warnings)


def _compacted_with(payload: list[Json]) -> Callable[[], Any]:
    return lambda: _compacted(payload)


async def test_damaged_message_keeps_its_neighbours_searchable_when_others_fit() -> None:
    payload: list[Json] = [
        {"role": "user", "content": "Read the file."},
        {"role": "assistant", "content": [{"type": "tool_use", "input": {"note": "needle9"}}]},
        {"role": "user", "content": "Go on."},
    ]
    result, stored = await _compacted(payload)
    assert (result.format, result.messages, stored) == ("anthropic", payload, payload)
    assert "`id` is missing" in " ".join(result.warnings)


@pytest.mark.parametrize("request_fields", [
    {"format": "anthropic"}, {"mode": "plan"}, {"mode": "reactive"},
])  # fmt: skip
async def test_damaged_list_is_refused_when_the_caller_needs_a_valid_one(
    request_fields: dict[str, Any],
) -> None:
    with pytest.raises((InvalidMessageError, UnknownFormatError)):
        await _compacted([{"who": "me", "text": "needle9"}], **request_fields)


@pytest.mark.parametrize("payload", [
    [{"role": "user", "text": " "}], [{}], ["text"], [{"role": "user", "content": [1]}],
    *(messages for messages, _ in LIBRARIES.values() if "source" not in messages[0]),
])  # fmt: skip
async def test_list_is_refused_when_it_has_no_text_or_belongs_to_a_library(
    payload: list[Any],
) -> None:
    with pytest.raises((InvalidMessageError, UnknownFormatError)):
        await _compacted(payload)

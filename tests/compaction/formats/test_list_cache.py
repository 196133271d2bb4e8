"""Cached lists have the messages that `parse` returns, even if the caller changed its list."""

import json
from copy import deepcopy
from typing import Any

import pytest
from context_compaction import formats
from context_compaction.formats import ListCache

PAYLOAD: list[dict[str, Any]] = [
    {"role": "user", "content": "Read the file."},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c1", "name": "Read", "input": {"limit": 1}}],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "x"}]},
]


def test_list_cache_returns_the_same_messages_when_a_list_is_read_again() -> None:
    lists = ListCache()
    first = lists.read(deepcopy(PAYLOAD), "anthropic")
    assert lists.read(deepcopy(PAYLOAD), "anthropic") is first
    grown = lists.read([*deepcopy(PAYLOAD), {"role": "assistant", "content": "Done."}], "anthropic")
    assert all(
        before is after for before, after in zip(first.messages, grown.messages, strict=False)
    )


def test_list_cache_is_unchanged_when_the_caller_changes_its_list() -> None:
    lists, given = ListCache(), deepcopy(PAYLOAD)
    lists.read(given, "anthropic")
    given[1]["content"][0]["input"]["limit"] = 2
    changed = lists.read(given, "anthropic")
    assert changed.messages == formats.parse(given, format="anthropic")
    assert lists.read(PAYLOAD, "anthropic").messages == formats.parse(PAYLOAD, format="anthropic")


@pytest.mark.parametrize("value", [True, 1.0, "1"])
def test_list_cache_distinguishes_equal_values_of_different_types(value: object) -> None:
    lists, other = ListCache(), deepcopy(PAYLOAD)
    lists.read(PAYLOAD, "anthropic")
    other[1]["content"][0]["input"]["limit"] = value
    source = lists.read(other, "anthropic").messages[1].source
    assert json.dumps(source) == json.dumps(other[1])


def test_list_cache_evicts_lists_when_it_exceeds_its_limit() -> None:
    lists = ListCache(max_bytes=10_000)
    first = lists.read(deepcopy(PAYLOAD), "anthropic")
    for number in range(20):
        lists.read([{"role": "user", "content": f"{number}" * 1_000}], "anthropic")
    assert lists.read(deepcopy(PAYLOAD), "anthropic") is not first
    assert lists.read(deepcopy(PAYLOAD), "anthropic").messages == first.messages


def test_once_computes_again_only_when_its_inputs_change() -> None:
    known, calls = ListCache().read(PAYLOAD, "anthropic"), list[int]()
    for given in (1, 1, 2, 2, 1):
        assert known.once("count", given, lambda given=given: calls.append(given) or given) == given
    assert calls == [1, 2, 1]

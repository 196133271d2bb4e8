"""What becomes of any result: small ones stay, large ones fit, and the whole can be read."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from context_compaction import Blob
from context_compaction.messages.model import is_object
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_server_compaction.wrap.demote import POINTER_FIELD, Demotion, demote

THRESHOLD_TOKENS = 200
PREVIEW_CHARS = 80


def words(text: str) -> int:
    """A counter of which a text has at most as many tokens as bytes."""
    return len(text.encode()) // 3 + 1


DEMOTION = Demotion(THRESHOLD_TOKENS, PREVIEW_CHARS, words)

texts = st.text(max_size=40).flatmap(
    lambda text: st.integers(0, 60).map(lambda times: (text + "\n") * times)
)
leaves = st.none() | st.booleans() | st.integers() | texts
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=60,
)
blocks = (
    texts.map(lambda text: {"type": "text", "text": text})
    | texts.map(lambda text: {"type": "resource", "resource": {"uri": "x://y", "text": text}})
    | st.just({"type": "image", "data": "QUJD" * 500, "mimeType": "image/png"})
    | st.just({"type": "resource_link", "uri": "x://y", "name": "y"})
)
results = st.fixed_dictionaries(
    {"content": st.lists(blocks, max_size=12)},
    optional={
        "structuredContent": st.dictionaries(st.text(max_size=8), values, max_size=5),
        "isError": st.booleans(),
        "_meta": st.just({"a": 1}),
    },
)


def shape(value: Any) -> Any:
    """The types of a value, of a list those of its items that are there."""
    if is_object(value):
        return {key: shape(item) for key, item in value.items()}
    return type(value).__name__


def texts_in(result: dict[str, Any]) -> list[str]:
    """The texts of its blocks and of the resources in them."""
    blocks = [block.get("resource", block) for block in result["content"]]
    return [block["text"] for block in blocks if "text" in block]


@given(results)
@settings(max_examples=150)
def test_a_result_keeps_what_is_small_and_whatever_left_is_kept_and_named(
    result: dict[str, Any],
) -> None:
    before = json.dumps(result)
    after, blobs = demote(result, DEMOTION, tool_name="t")
    assert json.dumps(result) == before
    if blobs:
        check_fields(result, after)
    else:
        assert after is result
    check_short_texts(after)
    check_kept(result, after, blobs)


def check_fields(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Other fields, media and the shape of blocks stay."""
    demoted = {"content", "structuredContent"}
    assert {k: v for k, v in after.items() if k not in demoted} == {
        k: v for k, v in before.items() if k not in demoted
    }
    before_blocks, after_blocks = before["content"], after["content"]
    media = [block for block in before_blocks if block["type"] in {"image", "resource_link"}]
    assert media == [block for block in after_blocks if block["type"] in {"image", "resource_link"}]
    if len(before_blocks) <= len(after_blocks):  # no texts were put together
        for old, new in zip(before_blocks, after_blocks, strict=False):
            assert shape(old) == shape(new)


def check_short_texts(after: dict[str, Any]) -> None:
    """Of many short texts no more stays than of a long one."""
    short = [text for text in texts_in(after) if "<persisted-output" not in text]
    stays = "\n".join(short)
    assert words(stays) <= THRESHOLD_TOKENS or len(short) < 2 or len(stays) <= PREVIEW_CHARS


def check_kept(before: dict[str, Any], after: dict[str, Any], blobs: Sequence[Blob]) -> None:
    """Every text that left is kept, and named in the result."""
    shown = json.dumps(after)
    kept = {blob.data.decode("utf-8", "surrogatepass") for blob in blobs}
    assert all(blob.output_id in shown for blob in blobs)
    for text in set(texts_in(before)) - set(texts_in(after)):
        assert any(text in whole for whole in kept)
    old, new = before.get("structuredContent"), after.get("structuredContent")
    if old != new:
        assert new is not None
        whole = json.dumps(old, ensure_ascii=False, separators=(",", ":"))
        assert whole in kept if POINTER_FIELD in new else shape(old) == shape(new)


def test_a_closed_schema_gets_no_field_of_ours() -> None:
    rows = {"rows": [{"name": f"row {number}"} for number in range(400)]}
    result = {"content": [{"type": "text", "text": json.dumps(rows)}], "structuredContent": rows}
    schema = {"additionalProperties": False}
    closed, blobs = demote(result, DEMOTION, tool_name="t", output_schema=schema)
    assert set(closed["structuredContent"]) == {"rows"}
    assert any(blob.output_id in closed["content"][-1]["text"] for blob in blobs)
    assert POINTER_FIELD in demote(result, DEMOTION, tool_name="t")[0]["structuredContent"]


def test_where_secrets_are_taken_out_no_preview_shows_one() -> None:
    secret = "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"  # in parts: no key in a file
    result = {"content": [{"type": "text", "text": f"{secret}\n" * 500}]}
    after, blobs = demote(result, replace(DEMOTION, redacts=True), tool_name="t")
    assert blobs
    assert secret[:20] not in json.dumps(after)

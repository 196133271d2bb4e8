"""Shortened tool results: small results stay, and removed texts are in the stored outputs."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from context_compaction import Blob
from context_compaction.messages.model import is_object
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_server_compaction.wrap.shorten import POINTER_FIELD, Limits, shorten

THRESHOLD_TOKENS = 200
PREVIEW_CHARS = 80


def count_tokens(text: str) -> int:
    """Count at most one token for each byte."""
    return len(text.encode()) // 3 + 1


LIMITS = Limits(THRESHOLD_TOKENS, PREVIEW_CHARS, count_tokens)

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
    """Return the types of the values in an object."""
    if is_object(value):
        return {key: shape(item) for key, item in value.items()}
    return type(value).__name__


def texts_in(result: dict[str, Any]) -> list[str]:
    """Return the texts of all blocks and embedded resources."""
    blocks = [block.get("resource", block) for block in result["content"]]
    return [block["text"] for block in blocks if "text" in block]


@given(results)
@settings(max_examples=150)
def test_shorten_stores_removed_texts_and_keeps_all_other_fields(
    result: dict[str, Any],
) -> None:
    before = json.dumps(result)
    after, blobs = shorten(result, LIMITS, tool_name="t")
    assert json.dumps(result) == before
    if blobs:
        check_fields(result, after)
    else:
        assert after is result
    check_short_texts(after)
    check_stored(result, after, blobs)


def check_fields(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Check that other fields, media and the shape of blocks are unchanged."""
    shortened = {"content", "structuredContent"}
    assert {k: v for k, v in after.items() if k not in shortened} == {
        k: v for k, v in before.items() if k not in shortened
    }
    before_blocks, after_blocks = before["content"], after["content"]
    media = [block for block in before_blocks if block["type"] in {"image", "resource_link"}]
    assert media == [block for block in after_blocks if block["type"] in {"image", "resource_link"}]
    if len(before_blocks) <= len(after_blocks):  # no texts were joined
        for old, new in zip(before_blocks, after_blocks, strict=False):
            assert shape(old) == shape(new)


def check_short_texts(after: dict[str, Any]) -> None:
    """Check that many short texts together do not exceed the limit of one long text."""
    short = [text for text in texts_in(after) if "<persisted-output" not in text]
    joined = "\n".join(short)
    is_small = count_tokens(joined) <= THRESHOLD_TOKENS
    assert is_small or len(short) < 2 or len(joined) <= PREVIEW_CHARS


def check_stored(before: dict[str, Any], after: dict[str, Any], blobs: Sequence[Blob]) -> None:
    """Check that every removed text is in an output that the result names."""
    shown = json.dumps(after)
    stored = {blob.data.decode("utf-8", "surrogatepass") for blob in blobs}
    assert all(blob.output_id in shown for blob in blobs)
    for text in set(texts_in(before)) - set(texts_in(after)):
        assert any(text in output for output in stored)
    old, new = before.get("structuredContent"), after.get("structuredContent")
    if old != new:
        assert new is not None
        output = json.dumps(old, ensure_ascii=False, separators=(",", ":"))
        assert output in stored if POINTER_FIELD in new else shape(old) == shape(new)


def test_shorten_puts_the_pointer_into_a_block_when_the_schema_is_closed() -> None:
    rows = {"rows": [{"name": f"row {number}"} for number in range(400)]}
    result = {"content": [{"type": "text", "text": json.dumps(rows)}], "structuredContent": rows}
    schema = {"additionalProperties": False}
    closed, blobs = shorten(result, LIMITS, tool_name="t", output_schema=schema)
    assert set(closed["structuredContent"]) == {"rows"}
    assert any(blob.output_id in closed["content"][-1]["text"] for blob in blobs)
    assert POINTER_FIELD in shorten(result, LIMITS, tool_name="t")[0]["structuredContent"]


def test_preview_contains_no_secret_when_redaction_is_on() -> None:
    secret = (
        "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"
    )  # in parts, so that no scanner reports this file
    result = {"content": [{"type": "text", "text": f"{secret}\n" * 500}]}
    after, blobs = shorten(result, replace(LIMITS, redacts=True), tool_name="t")
    assert blobs
    assert secret[:20] not in json.dumps(after)

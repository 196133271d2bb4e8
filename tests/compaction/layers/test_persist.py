"""Persist: a large result is archived, and a marker with a preview stays."""

from context_compaction.layers.persist import persist
from context_compaction.messages.model import Image, Text
from context_compaction.request import Settings

from tests.support.script import TINY_PNG
from tests.support.small import (
    answered,
    assistant,
    compacted,
    image,
    layer_context,
    lines,
    read,
    result_of,
    text,
    user,
)

BIG = lines("big", 2_000)
WITHIN_1_000 = layer_context(Settings(persist_result_tokens=1_000))
# Without a separate limit for the newest results.
PLAIN_LIMITS = {"scale_to_budget": False}


def test_persist_keeps_images_next_to_the_marker() -> None:
    messages = read([user("go"), *answered("a", "Shot", [text(BIG), image(TINY_PNG), text("end")])])
    step = persist(messages, WITHIN_1_000)
    marker, picture = result_of(step.messages, "a").content
    assert isinstance(marker, Text)
    assert isinstance(picture, Image)
    assert [blob.data.decode() for blob in step.blobs] == [BIG, "end"]
    assert all(blob.output_id in marker.text for blob in step.blobs)


def test_persist_leaves_persisted_results_unchanged() -> None:
    messages = read([user("go"), *answered("a", "Bash", BIG)])

    once = persist(messages, WITHIN_1_000).messages
    assert persist(once, layer_context(Settings(persist_result_tokens=10))).messages is once


async def test_persist_edits_only_the_newest_result_below_the_trigger() -> None:
    huge = lines("huge", 30_000)
    old = [user("go"), *answered("a", "Bash", huge), assistant("seen"), user("more")]
    payload = [*old, *answered("b", "Bash", lines("other", 30_000))]
    answer = await compacted(payload, context_window=1_500_000, settings=PLAIN_LIMITS)
    assert [edit.index for edit in answer.edits] == [6]
    assert all(item is other for item, other in zip(old, answer.messages, strict=False))
    assert answer.status == "compacted"

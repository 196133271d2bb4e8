"""Images are archived if a request has too many bytes; invalid thinking is stripped."""

import json
from typing import Any

import pytest
from context_compaction.layers.persist import offload_media
from context_compaction.messages.model import ToolResult
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest

from tests.support.json_types import Json
from tests.support.promises import check_promises, temporary_archive
from tests.support.small import (
    COUNT,
    answered,
    assistant,
    compacted,
    image,
    layer_context,
    lines,
    read,
    text,
    thinking,
    user,
)

PICTURES = [f"{n}" + "iVBORw0KGgo" * 2_000 + "=" for n in range(4)]  # 22 KB each


def album() -> list[Json]:
    """Return images in a result, in a user message, and in the newest turn."""
    return [
        user([text("Look at these."), image(PICTURES[0])]),
        assistant("I see."),
        *answered("a", "Screenshot", [text("the page"), image(PICTURES[1])]),
        assistant("A page."),
        user([image(PICTURES[2]), text("And this one?")]),
        *answered("b", "Screenshot", [image(PICTURES[3])]),
        assistant("Yes."),
    ]


def test_offload_archives_the_oldest_images_first_until_the_list_fits() -> None:
    messages = read(album())
    step = offload_media(messages, layer_context(limit_bytes=COUNT.request_bytes(messages) - 1))
    [edit] = step.edits
    assert (edit.index, edit.action, edit.note) == (0, "offloaded", "media")
    [blob] = step.blobs
    assert json.loads(blob.data) == image(PICTURES[0])
    placeholder = step.messages[0].blocks[1]
    assert getattr(placeholder, "text", "") == (
        f"[Media archived: image image/png; read_persisted_output {blob.output_id}]"
    )
    assert step.messages[0].blocks[0] is messages[0].blocks[0]


def test_offload_archives_images_in_results_and_keeps_their_text() -> None:
    messages = read(album())
    step = offload_media(messages, layer_context(limit_bytes=60_000))
    assert [edit.index for edit in step.edits] == [0, 3]
    [result] = step.messages[3].blocks
    assert isinstance(result, ToolResult)
    assert [getattr(part, "text", "")[:16] for part in result.content] == [
        "the page",
        "[Media archived:",
    ]


def test_offload_keeps_images_of_the_newest_turn() -> None:
    messages = read(album())
    step = offload_media(messages, layer_context(limit_bytes=1))
    assert step.messages[5:] == messages[5:]


async def test_offload_brings_a_request_within_its_byte_limit_and_media_reads_back() -> None:
    request = CompactRequest(
        format="anthropic", context_window=200_000, settings={"max_request_bytes": 60_000}
    )
    async with temporary_archive() as archive:
        answer = await check_promises(album(), request, archive)
    assert answer.status == "compacted"
    assert answer.fits
    assert len(json.dumps(answer.messages)) <= 60_000
    assert {edit.layer for edit in answer.edits} == {"offload"}


def thoughtful() -> list[Json]:
    """Return a large old result with thinking before and after it."""
    result = [
        assistant(thinking("what to run"), *answered("a", "Bash", "")[0]["content"]),
        answered("a", "Bash", lines("a", 900))[1],
    ]
    later = answered("b", "Bash", "small")
    later[0]["content"] = [thinking("what it means"), *later[0]["content"]]
    return [user("go"), *result, *later, assistant(thinking("so"), "Done."), user("more")]


MICRO = {"min_savings_tokens": 0, "keep_recent_results": 1}


async def test_thinking_after_an_edit_is_stripped_and_reported() -> None:
    payload = thoughtful()
    answer = await compacted(payload, mode="micro", settings=MICRO)
    assert answer.messages[1] is payload[1]  # before the edit, so its thinking is still valid
    assert "thinking" not in str(answer.messages[3:])
    stripped = [edit for edit in answer.edits if edit.layer == "thinking"]
    assert [edit.index for edit in stripped] == [3, 5]
    assert all(edit.pointers and edit.tokens_after < edit.tokens_before for edit in stripped)


async def test_summaries_list_images_through_three_rounds() -> None:
    document: Json = {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": PICTURES[0]},
    }
    payload: list[Json] = [
        user([text("Make the page like this."), image(PICTURES[0])]),
        *answered("s", "Screenshot", [text("the page"), image(PICTURES[1])]),
        assistant("I see."),
        user([document, text("and read this")]),
        assistant("Done."),
    ]
    request = CompactRequest(format="anthropic", session_id="s", target_tokens=2_500, mode="full")
    async with temporary_archive() as archive:
        for turn in range(3):
            for step in range(8):
                name = f"{turn}{step}"
                payload += [user(f"step {name}"), *answered(name, "Bash", lines(name, 60))]
                payload.append(assistant(f"done {name}"))
            payload = (await compact(payload, request, archive=archive)).messages
            content = str(payload)
            assert "[0] user: [image, image/png]" in content
            assert "[2] result of Screenshot: [image, image/png]" in content
            assert "[4] user: [document, application/pdf]" in content


def thinking_loop() -> list[Json]:
    """Return a running tool loop in which each call follows thinking."""
    messages = [user("Count the rows.")]
    for number in range(12):
        output = lines(f"n{number}", 60)
        asked, reported = answered(f"c{number}", "Bash", output, command=f"n {number}")
        messages += [assistant(thinking(f"step {number}"), *asked["content"]), reported]
    return messages


@pytest.mark.parametrize(
    ("model", "rule", "keeps_thinking"),
    [
        ("claude-3-7-sonnet-20250219", "auto", True),
        ("claude-sonnet-4-20250514", "auto", True),
        ("anthropic.claude-opus-4-1-20250805-v1:0", "auto", True),
        ("anthropic/claude-sonnet-4.5", "auto", True),
        ("claude-haiku-4-5", "strip", False),
        ("claude-opus-4-8", "auto", False),  # adaptive
        ("claude-opus-4-8", "enabled", True),
        ("claude-fable-5-1", "auto", False),  # bound
        (None, "auto", False),
        (None, "enabled", True),
    ],
)
@pytest.mark.parametrize("mode", ["micro", "full", "reactive"])
async def test_running_loop_keeps_its_thinking_when_the_model_needs_it(
    model: str | None, rule: str, keeps_thinking: bool, mode: Any
) -> None:
    for extra in ([], [{"role": "system", "content": "Five calls are left."}]):
        answer = await compacted(
            [*thinking_loop(), *extra], mode=mode, model=model, settings={"thinking": rule}
        )
        newest = next(m for m in reversed(answer.messages) if m["role"] == "assistant")
        assert newest["content"][0]["type"] == ("thinking" if keeps_thinking else "tool_use")


async def test_thinking_after_an_edit_of_its_own_message_is_stripped() -> None:
    block: Json = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    response = assistant(thinking("bound"), block, thinking("void"), "Done.")
    request = CompactRequest(format="anthropic")
    async with temporary_archive() as archive:
        answer = await check_promises([user("go"), response, user("more")], request, archive)
    assert answer.status == "repaired"
    assert "bound" in str(answer.messages[1])
    assert "void" not in str(answer.messages[1])


async def test_thinking_is_kept_when_the_format_does_not_bind_it() -> None:
    payload = [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "run", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": lines("a", 900)},
        {"role": "assistant", "content": "ok", "reasoning_content": "so"},
        {"role": "user", "content": "more"},
    ]
    request = CompactRequest(
        mode="micro", format="openai-chat", settings={**MICRO, "keep_recent_results": 0}
    )
    async with temporary_archive() as archive:
        answer = await compact(payload, request, archive=archive)
    assert answer.status == "compacted"
    assert answer.messages[3] is payload[3]

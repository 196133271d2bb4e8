"""Bedrock's Converse API: its blocks, its cache points, and alternating roles."""

import pytest
from context_compaction import CompactRequest, compact, formats
from context_compaction.messages.model import (
    Block,
    Document,
    Image,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    edit_message,
    edit_result,
    starts_turn,
)

from tests.support.json_types import Json
from tests.support.promises import check_promises, read_pointer, temporary_archive
from tests.support.provider_rules import problems
from tests.support.small import compacted, lines

FORMAT = "bedrock-converse"
POINT: Json = {"cachePoint": {"type": "default"}}


def user(*content: Json) -> Json:
    return {"role": "user", "content": [*content]}


def assistant(*content: Json) -> Json:
    return {"role": "assistant", "content": [*content]}


def text(words: str) -> Json:
    return {"text": words}


def call(id_: str) -> Json:
    return {"toolUse": {"toolUseId": id_, "name": "f", "input": {}}}


def result(id_: str, words: str = "ok") -> Json:
    return {"toolResult": {"toolUseId": id_, "content": [text(words)]}}


def blocks_of(*content: Json) -> tuple[Block, ...]:
    [message] = formats.parse([assistant(*content)], format=FORMAT)
    return message.blocks


def test_converse_blocks_are_parsed_by_kind() -> None:
    searched: Json = {"searchResult": {"source": "https://x", "title": "t", "content": []}}
    server: Json = {
        "toolUse": {"toolUseId": "s", "name": "g", "input": {}, "type": "server_tool_use"}
    }
    guarded = {"guardContent": {"text": {"text": "check me", "qualifiers": ["query"]}}}
    cited: Json = {"citationsContent": {"content": [text("as "), text("said")], "citations": []}}
    assert blocks_of(
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
        {"reasoningContent": {"redactedContent": "AAAA"}},
        text("hi"),
        guarded,
        cited,
        searched,
        server,
        {"toolUse": {"toolUseId": "t", "name": "f", "input": {"a": 1}}},
    ) == (
        Thinking("hm", "s"),
        Thinking("", "AAAA"),
        Text("hi"),
        Text("check me"),
        Text("as said"),
        Opaque("searchResult", searched),
        Opaque("toolUse", server),
        ToolCall("t", "f", {"a": 1}),
    )


def test_media_is_parsed_from_bytes_text_and_s3() -> None:
    bucket = {"s3Location": {"uri": "s3://b/k", "bucketOwner": "1"}}
    pieces: Json = {"document": {"name": "n", "source": {"content": [text("x")]}}}
    assert blocks_of(
        {"image": {"format": "jpeg", "source": {"bytes": "AA"}}},
        {"image": {"format": "png", "source": bucket}},
        {"document": {"format": "md", "name": "n", "source": {"bytes": "AA"}}},
        {"document": {"name": "n", "source": {"text": "plain"}}},
        {"video": {"format": "three_gp", "source": bucket}},
        {"audio": {"format": "mp3", "source": {"bytes": "AA"}}},
        pieces,
    ) == (
        Image("image/jpeg", data="AA"),
        Image("image/png", url="s3://b/k"),
        Document("text/markdown", data="AA"),
        Document("text/plain", text="plain"),
        Document("video/3gpp", url="s3://b/k"),
        Document("audio/mp3", data="AA"),
        Opaque("document", pieces),
    )


def test_new_documents_get_unique_names_and_a_text_when_rendered() -> None:
    files = tuple(Document("application/pdf", data=data) for data in ("AA", "BB"))
    [rendered] = formats.render((Message("user", files),), format=FORMAT)
    *documents, text_block = rendered["content"]
    names = {block["document"]["name"] for block in documents}
    assert len(names) == 2
    assert all(name.replace("-", "").isalnum() for name in names)
    assert text_block["text"].strip()
    assert problems([rendered], FORMAT) == []


def test_cache_point_is_no_block_so_that_results_before_it_start_no_turn() -> None:
    [message] = formats.parse([user(result("a"), POINT)], format=FORMAT)
    assert [type(block) for block in message.blocks] == [ToolResult]
    assert not starts_turn(message)


def test_cache_point_stays_after_its_block_when_the_message_is_edited() -> None:
    [message] = formats.parse([user(result("a"), POINT, text("x"), POINT)], format=FORMAT)
    first, second = message.blocks
    assert isinstance(first, ToolResult)
    edited = edit_message(message, [edit_result(first, "gone"), Text("new"), second])
    assert formats.render((edited,), format=FORMAT) == [
        user(result("a", "gone"), POINT, text("new"), text("x"), POINT)
    ]
    without = edit_message(message, [second])
    assert formats.render((without,), format=FORMAT) == [user(text("x"), POINT)]


def _talk(turns: int) -> list[Json]:
    talk: list[Json] = []
    for n in range(turns):
        talk += [
            user(text(f"Request {n}.")),
            assistant(call(f"c{n}")),
            user(result(f"c{n}", lines(f"out{n}", 60))),
            assistant(text(f"Part {n} is done.")),
        ]
    return talk


async def test_cache_point_moves_to_the_summary_when_its_message_is_replaced() -> None:
    talk = _talk(6)
    talk[2]["content"].append(POINT)
    done = await compacted(talk, mode="full", format=FORMAT)
    assert done.boundary is not None
    [at] = [n for n, message in enumerate(done.messages) if POINT in message["content"]]
    made = done.messages[at]["content"][0]["text"]
    assert made.startswith(("<context_summary ", "<turn_context "))
    assert problems(done.messages, FORMAT, original=talk) == []


@pytest.mark.parametrize("marked", range(3))
async def test_second_summary_points_to_all_messages_when_it_replaces_the_first(
    marked: int,
) -> None:
    talk = _talk(6)
    talk[2 * marked]["content"].append(POINT)
    async with temporary_archive() as archive:
        request = CompactRequest(format=FORMAT, mode="full", session_id="s")
        first = await check_promises(talk, request, archive)
        again = await compact([*first.messages, *_talk(3)], request, archive=archive)
        assert again.boundary is not None
        assert await read_pointer(again.boundary.pointer, archive) > {"Request 0.", "Request 5."}

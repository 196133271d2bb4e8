"""Search finds every string in blocks of a provider's own tools, in every format."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from context_compaction import CompactRequest, Query, compact, open_archive
from context_compaction.archive.documents import read_stored
from context_compaction.messages.model import is_list, is_object

from tests.support.corpus import DATA
from tests.support.json_types import Json

# Blocks from the documentation of the providers, by format. NAMED is a placeholder for text.
HOSTED: dict[str, list[Json]] = json.loads((DATA / "hosted_tools.json").read_bytes())
CASES = [(format, block) for format, blocks in HOSTED.items() for block in blocks]


def _filled(value: Any, words: Iterator[str]) -> Any:
    """Return `value` with a different word for each placeholder."""
    if is_object(value):
        return {key: _filled(item, words) for key, item in value.items()}
    if is_list(value):
        return [_filled(item, words) for item in value]
    return f"pump {next(words)} leaks" if value == "NAMED" else value


def _message(format: str, block: Json, words: Iterator[str]) -> Json:
    filled: Json = _filled(block, words)
    if format == "gemini":
        return {"role": "model", "parts": [filled]}
    if format in ("anthropic", "bedrock-converse"):
        answers = "tool_use_id" in filled and filled["type"] == "tool_result"
        return {
            "role": "user" if answers or "toolResult" in filled else "assistant",
            "content": [filled],
        }
    return filled


def _words() -> Iterator[str]:
    return (f"zephyr{number}q" for number in range(100, 1_000))


@pytest.mark.parametrize(("format", "block"), CASES)
def test_message_text_has_every_string_of_a_hosted_tool(format: str, block: Json) -> None:
    message = _message(format, block, _words())
    written = set(re.findall(r"zephyr\d+q", str(message)))
    assert written
    assert written == set(re.findall(r"zephyr\d+q", read_stored(message, format).text))


@pytest.mark.parametrize("format", HOSTED)
async def test_search_finds_results_of_hosted_tools(format: str, tmp_path: Path) -> None:
    words = _words()
    messages = [_message(format, block, words) for block in HOSTED[format]]
    async with open_archive(tmp_path / "archive") as archive:
        request = CompactRequest(format=format, session_id="s", mode="record")
        await compact(messages, request, archive=archive)
        for word in sorted(set(re.findall(r"zephyr\d+q", str(messages)))):
            assert (await archive.search(Query(word))).hits, word
            assert (await archive.search(Query(f"{word} l[e]aks", kind="regex"))).hits, word


@pytest.mark.parametrize("name", ["type", "id", "model", "stopReason", "data", "signature"])
def test_message_text_has_words_in_any_field_of_a_damaged_message(name: str) -> None:
    message = {"role": "user", "content": "hello", name: "they said zephyr about it"}
    assert "zephyr" in read_stored(message, "anthropic").text


def test_message_text_has_no_images_and_encrypted_content() -> None:
    encoded = "QUJD" * 100
    block = {
        "type": "web_search_tool_result",
        "tool_use_id": "s",
        "content": [{"title": "found", "encrypted_content": encoded}],
    }
    text = read_stored({"role": "assistant", "content": [block]}, "anthropic").text
    assert "found" in text
    assert encoded not in text

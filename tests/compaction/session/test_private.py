"""Text that the user marks as private reaches the model but is never stored."""

import json
import tempfile
from pathlib import Path

import anyio
import pytest
import zstandard
from context_compaction import CompactRequest, Query, compact, open_archive
from context_compaction.formats import FORMATS, parse, render
from context_compaction.formats.convert import convert
from context_compaction.messages.raw import HIDDEN, hide_private
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.small import answered, assistant, user

WORD = "quixnorblat7"
SECRET = f"Never use the host {WORD}. The plan:\n1. {WORD} first\n2. then {WORD}\n"
FILLING = "The listing was read and its items were compared with the plan. " * 20


def _conversation(format: str, marked: str) -> list[Json]:
    """Return a conversation in which `marked` is in the first, middle and last user messages."""
    messages = [user("Move the service. PLACE And report.")]
    for number in range(12):
        messages += answered(f"t{number}", "read_file", FILLING, path=f"/w/{number}.py")
        messages += [assistant(f"Step {number}. {FILLING}"), user(f"PLACE Go on with {number}.")]
    payload = render(convert(parse(messages, format="anthropic"), to=format), format=format)
    return json.loads(json.dumps(payload).replace("PLACE", json.dumps(marked)[1:-1]))


def _stored(folder: Path) -> bytes:
    """Return all file names and bytes below a folder, with zstd frames decompressed."""
    stored: list[bytes] = []
    for path in folder.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        stored += [str(path).encode(), data]
        for part in data.split(b"\x28\xb5\x2f\xfd")[1:]:
            try:
                stored.append(zstandard.decompress(b"\x28\xb5\x2f\xfd" + part))
            except zstandard.ZstdError:
                continue
    return b"\n".join(stored)


@pytest.mark.parametrize("format", FORMATS)
@given(
    before=st.sampled_from(["", "a\n", "```\n", "> ", "<private>x</private> "]),
    open_tag=st.sampled_from(["<private>", "<PRIVATE>", "<private><private>x</private>"]),
    repeat=st.integers(1, 40),
    mode=st.sampled_from(["full", "micro", "record"]),
)
@settings(max_examples=6, deadline=None)
def test_private_text_is_never_stored_in_any_format(
    format: str, before: str, open_tag: str, repeat: int, mode: str
) -> None:
    payload = _conversation(format, f"{before}{open_tag}{SECRET * repeat}</private>")

    async def run(folder: Path) -> None:
        request = CompactRequest(mode=mode, target_tokens=4_000, format=format)  # type: ignore[arg-type]
        async with open_archive(folder) as archive:
            first = await compact(payload, request, archive=archive)
            grown = [*(first.messages or payload), *payload[-2:]]
            again = await compact(grown, request, archive=archive)
            archived = await archive.read_messages(first.session_id, 0, 0)
            hits = (await archive.search(Query(WORD))).hits
        assert again.session_id == first.session_id
        assert not hits
        assert HIDDEN in json.dumps(archived[0].raw)
        assert WORD not in f"{first.summary} {again.summary} {json.dumps(first.receipt)}"
        assert first.messages[-1] == payload[-1], "the model still sees the text"

    with tempfile.TemporaryDirectory() as folder:
        anyio.run(run, Path(folder))
        assert WORD.encode() not in _stored(Path(folder))


def test_private_tags_outside_user_text_are_stored() -> None:
    marked = f"<private>{WORD}</private>"
    result = {"type": "tool_result", "tool_use_id": "t", "content": marked}
    for raw in (
        {"role": "assistant", "content": marked},
        {"role": "user", "content": [result]},
        {"role": "user", "parts": [{"functionResponse": {"response": {"output": marked}}}]},
        {"role": "user", "content": f"an open <private> {WORD}"},
    ):
        assert hide_private(raw) is raw

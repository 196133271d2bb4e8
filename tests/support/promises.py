"""The promises of a compaction, as checks that drive the library and judge it from outside.

The judge of validity and the list of what left are independent of the product; originals are read
back through the archive by the pointers that stand in the answer, and by nothing else.
"""

import copy
import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from context_compaction.archive import ArchivedMessage, OutputSlice
from context_compaction.archive.local.archive import LocalArchive, open_archive
from context_compaction.errors import NotFoundError, SettingsError
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from context_compaction.summarizers.extractive.shortened import SHORTENED_MESSAGES

from .json_types import Json
from .provider_rules import problems
from .readback import removed_texts

_POINTER = re.compile(r"o_[0-9a-f]{24}|transcript://[A-Za-z0-9_.:-]+/messages/\d+-\d+")


@asynccontextmanager
async def temporary_archive() -> AsyncGenerator[LocalArchive]:
    """An archive in a folder of its own."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        async with open_archive(root / "archive", index_root=root / "index") as archive:
            yield archive


@asynccontextmanager
async def archive_without_originals() -> AsyncGenerator[LocalArchive]:
    """A `temporary_archive` that has lost every message that it was given, and knows the rest."""
    async with temporary_archive() as archive:
        yield without_originals(archive)


def without_originals(archive: LocalArchive) -> LocalArchive:
    """`archive` as if it had lost every message that it was given."""
    return cast("LocalArchive", _WithoutOriginals(archive))


class _WithoutOriginals:
    def __init__(self, archive: LocalArchive) -> None:
        self._archive = archive

    def __getattr__(self, name: str) -> Any:
        return getattr(self._archive, name)

    async def read_messages(
        self, session_id: str, start: int, stop: int, *, head: str | None = None
    ) -> list[ArchivedMessage]:
        raise NotFoundError(f"Messages {start} to {stop} of {session_id} {head} are lost.")

    async def read_output(self, output_id: str, **wanted: Any) -> OutputSlice:
        found = await self._archive.read_output(output_id, **wanted)
        if found.info.tool_name == SHORTENED_MESSAGES:
            raise NotFoundError(f"What {output_id} tells of lost messages is lost with them.")
        return found


@contextmanager
def refusable(payload: list[Json]) -> Generator[None]:
    """A list whose system messages alone fill the target is refused, and says so.

    None other is: they stay at any cut, and nothing of the conversation would be left beside them.
    """
    try:
        yield
    except SettingsError as refused:
        roles = {message.get("role") for message in payload}
        if "which stay, take up to" not in str(refused) or not roles & {"system", "developer"}:
            raise


async def check_promises(
    payload: list[Json], request: CompactRequest, archive: LocalArchive
) -> CompactResult:
    """Compact `payload` and check every promise; returns the answer."""
    as_given = copy.deepcopy(payload)
    request = await _roomy(payload, request, archive)
    result = await compact(payload, request, archive=archive)
    assert payload == as_given, "the input was changed"
    assert request.format is not None
    faults = problems(result.messages, request.format, original=payload)
    assert not faults, faults
    # The last gate is there for faults of ours; it must never have anything to do.
    assert not any("would reject the result" in warning for warning in result.warnings)
    _check_fit(result, request)
    _check_untouched(payload, result)
    await check_readback(payload, result, request.format, archive)
    await _check_stability(payload, request, result, archive)
    return result


async def _roomy(
    payload: list[Json], request: CompactRequest, archive: LocalArchive
) -> CompactRequest:
    """`request`, with more than its target where that is refused since system messages fill it."""
    try:
        await compact(payload, replace(request, mode="plan"), archive=archive)
    except SettingsError as refused:
        least = re.search(r"which stay, take up to (\d+)", str(refused))
        if least is None or request.mode in ("record", "reactive"):
            return request
        if request.target_tokens is None:
            decides = {"trigger_fraction", "conversation_fraction"}
            kept = {key: value for key, value in request.settings.items() if key not in decides}
            tokens = 4 * int(least[1])
            settings = {**kept, "trigger_tokens": tokens}
            return replace(request, context_window=10 * tokens, settings=settings)
        return replace(request, target_tokens=int(least[1]) + 1)
    return request


def _check_fit(result: CompactResult, request: CompactRequest) -> None:
    """Within the target by the upper estimate, or an honest answer that names the pieces."""
    if not result.messages:
        assert result.fits
    elif not result.fits:
        assert result.irreducible, "it does not fit and names no piece"
        assert any("does not fit" in warning for warning in result.warnings)
    elif request.mode == "auto":
        # A list below the trigger may be edited too, and then it need not come to the target.
        was_over = result.boundary is not None or result.tokens.before > result.tokens.trigger
        assert result.tokens.upper <= (result.tokens.target if was_over else result.tokens.trigger)


def _check_untouched(payload: list[Json], result: CompactResult) -> None:
    """Messages that no edit names come back as the host's own objects."""
    if result.status == "unchanged":
        assert all(one is other for one, other in zip(payload, result.messages, strict=True))
        return
    edited = {edit.index for edit in result.edits}
    # An object that stands in the list twice cannot be followed by its identity.
    mine = {key for key, times in Counter(map(id, payload)).items() if times == 1}
    kept = [message for message in result.messages if id(message) in mine]
    order = {id(message): at for at, message in enumerate(payload)}
    positions = [order[id(message)] for message in kept if order[id(message)] not in edited]
    assert positions == sorted(positions), "kept messages changed their order"
    if result.boundary is None:
        untouched = [m for at, m in enumerate(payload) if at not in edited]
        missing = [m for m in untouched if id(m) in mine and not any(m is k for k in kept)]
        assert not missing, f"a message without an edit is gone: {str(missing[0])[:200]}"


async def check_readback(
    payload: list[Json], result: CompactResult, format: str, archive: LocalArchive
) -> None:
    """Everything that left can be read by the pointers in the answer, to the byte."""
    removed = removed_texts(payload, result.messages, format)
    if not removed:
        return
    pointers = set(_POINTER.findall(json.dumps(result.messages)))
    pointers |= {pointer for edit in result.edits for pointer in edit.pointers}
    pointers -= set(_POINTER.findall(json.dumps(payload)))  # those imitate ours, or are older
    readable: set[str] = set()
    for pointer in sorted(pointers):
        readable |= await read_pointer(pointer, archive)
    for item in removed:
        assert item.text in readable, f"lost: {item.kind} of message {item.where}"


async def read_pointer(pointer: str, archive: LocalArchive) -> set[str]:
    """Every string that `pointer` names."""
    if pointer.startswith("o_"):
        data = (await archive.read_output(pointer)).data
        text = data.decode("utf-8", "surrogatepass")
        return {text, *(strings_in(json.loads(text)) if _is_json(text) else ())}
    session_id, _, span = pointer.removeprefix("transcript://").partition("/messages/")
    numbers, _, head = span.partition("@")
    start, stop = numbers.split("-")
    found = await archive.read_messages(session_id, int(start), int(stop), head=head or None)
    return {text for message in found for text in strings_in(message.raw)}


def _is_json(text: str) -> bool:
    if text[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def strings_in(value: Any) -> set[str]:
    """Every string in a JSON value, and in the JSON that its strings hold (call arguments)."""
    found: set[str] = set()
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            found.add(item)
            if _is_json(item):
                waiting.append(json.loads(item))
        elif isinstance(item, dict):
            waiting.extend(item.values())  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(item, list):
            waiting.extend(item)  # pyright: ignore[reportUnknownArgumentType]
    return found


async def _check_stability(
    payload: list[Json], request: CompactRequest, result: CompactResult, archive: LocalArchive
) -> None:
    """The same input gives the same bytes, and a compacted list is not changed again."""
    again = await compact(payload, request, archive=archive)
    assert _bytes(again.messages) == _bytes(result.messages), "the same input gave other bytes"
    if request.mode == "reactive":
        return  # a refused list is to be made smaller each time, however small it is
    second_request = replace(
        request, session_id=result.session_id, usage=None, usage_message_index=None
    )
    second = await compact(result.messages, second_request, archive=archive)
    assert _bytes(second.messages) == _bytes(result.messages), "a second compaction changed it"
    assert not second.changed


def _bytes(messages: Sequence[Json]) -> str:
    return json.dumps(messages)

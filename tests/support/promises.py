"""Checks of the promises of a compaction, from outside the library.

The check of validity and the list of removed texts are independent of the product. Originals are
read through the archive, only by the pointers in the result.
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

from context_compaction.archive.archive import Archive
from context_compaction.archive.opening import open_archive
from context_compaction.archive.values import ArchivedMessage
from context_compaction.errors import NotFoundError, SettingsError
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult

from .json_types import Json
from .provider_rules import problems
from .readback import removed_texts

_POINTER = re.compile(r"o_[0-9a-f]{24}|transcript://[A-Za-z0-9_.:-]+/messages/\d+-\d+")


@asynccontextmanager
async def temporary_archive() -> AsyncGenerator[Archive]:
    """Open an archive in a temporary folder."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        async with open_archive(root / "archive", index_root=root / "index") as archive:
            yield archive


@asynccontextmanager
async def archive_without_originals() -> AsyncGenerator[Archive]:
    """Open a temporary archive that loses every message, but nothing else."""
    async with temporary_archive() as archive:
        yield without_originals(archive)


def without_originals(archive: Archive) -> Archive:
    """Return `archive` as if it had lost every message."""
    return cast("Archive", _WithoutOriginals(archive))


class _WithoutOriginals:
    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def __getattr__(self, name: str) -> Any:
        return getattr(self._archive, name)

    async def read_messages(
        self, session_id: str, start: int, stop: int, *, head: str | None = None
    ) -> list[ArchivedMessage]:
        raise NotFoundError(f"Messages {start} to {stop} of {session_id} {head} are lost.")


@contextmanager
def refusable(payload: list[Json]) -> Generator[None]:
    """Allow the refusal of a list whose system messages alone fill the target.

    System messages stay at any cut, so nothing of the conversation would be left. Other refusals
    are raised.
    """
    try:
        yield
    except SettingsError as refused:
        roles = {message.get("role") for message in payload}
        if "which stay, take up to" not in str(refused) or not roles & {"system", "developer"}:
            raise


async def check_promises(
    payload: list[Json], request: CompactRequest, archive: Archive
) -> CompactResult:
    """Compact `payload`, check every promise, and return the result."""
    as_given = copy.deepcopy(payload)
    request = await _roomy(payload, request, archive)
    result = await compact(payload, request, archive=archive)
    assert payload == as_given, "the input was changed"
    assert request.format is not None
    faults = problems(result.messages, request.format, original=payload)
    assert not faults, faults
    # The last gate catches faults of the library, so it must never reject a result.
    assert not any("would reject the result" in warning for warning in result.warnings)
    _check_fit(result, request)
    _check_untouched(payload, result)
    await check_readback(payload, result, request.format, archive)
    await _check_stability(payload, request, result, archive)
    return result


async def _roomy(payload: list[Json], request: CompactRequest, archive: Archive) -> CompactRequest:
    """Return `request` with a larger target if system messages fill its target."""
    try:
        await compact(payload, replace(request, mode="plan"), archive=archive)
    except SettingsError as refused:
        least = re.search(r"which stay, take up to (\d+)", str(refused))
        if least is None or request.mode in ("record", "reactive"):
            return request
        if request.target_tokens is None:
            decides = {"trigger_fraction", "conversation_fraction"}
            other_settings = {
                key: value for key, value in request.settings.items() if key not in decides
            }
            tokens = 4 * int(least[1])
            settings = {**other_settings, "trigger_tokens": tokens}
            return replace(request, context_window=10 * tokens, settings=settings)
        return replace(request, target_tokens=int(least[1]) + 1)
    return request


def _check_fit(result: CompactResult, request: CompactRequest) -> None:
    """Check that the upper estimate is within the target, or that the largest pieces are named."""
    if not result.messages:
        assert result.fits
    elif not result.fits:
        assert result.irreducible, "it does not fit and names no piece"
        assert any("does not fit" in warning for warning in result.warnings)
    elif request.mode == "auto":
        # A list below the trigger can be edited, too; then its limit is the trigger.
        was_over = result.boundary is not None or result.tokens.before > result.tokens.trigger
        assert result.tokens.upper <= (result.tokens.target if was_over else result.tokens.trigger)


def _check_untouched(payload: list[Json], result: CompactResult) -> None:
    """Check that messages without an edit are the host's own objects."""
    if result.status == "unchanged":
        assert all(before is after for before, after in zip(payload, result.messages, strict=True))
        return
    edited = {edit.index for edit in result.edits}
    # An object that is in the list twice cannot be identified.
    unique_ids = {key for key, times in Counter(map(id, payload)).items() if times == 1}
    retained = [message for message in result.messages if id(message) in unique_ids]
    order = {id(message): index for index, message in enumerate(payload)}
    positions = [order[id(message)] for message in retained if order[id(message)] not in edited]
    assert positions == sorted(positions), "kept messages changed their order"
    if result.boundary is None:
        untouched = [m for index, m in enumerate(payload) if index not in edited]
        missing = [
            m for m in untouched if id(m) in unique_ids and not any(m is k for k in retained)
        ]
        assert not missing, f"a message without an edit is missing: {str(missing[0])[:200]}"


async def check_readback(
    payload: list[Json], result: CompactResult, format: str, archive: Archive
) -> None:
    """Check that every removed text can be read by the pointers in the result, byte for byte."""
    removed = removed_texts(payload, result.messages, format)
    if not removed:
        return
    pointers = set(_POINTER.findall(json.dumps(result.messages)))
    pointers |= {pointer for edit in result.edits for pointer in edit.pointers}
    pointers -= set(_POINTER.findall(json.dumps(payload)))  # forged or older pointers
    readable: set[str] = set()
    for pointer in sorted(pointers):
        readable |= await read_pointer(pointer, archive)
    for item in removed:
        assert item.text in readable, f"lost: {item.kind} of message {item.where}"


async def read_pointer(pointer: str, archive: Archive) -> set[str]:
    """Return every string at `pointer`."""
    if pointer.startswith("o_"):
        data = (await archive.read_output(pointer)).data
        text = data.decode("utf-8", "surrogatepass")
        return {text, *(strings_in(json.loads(text)) if _is_json(text) else ())}
    session_id, _, span = pointer.removeprefix("transcript://").partition("/messages/")
    numbers, _, head = span.partition("@")
    start, stop = numbers.split("-")
    messages = await archive.read_messages(session_id, int(start), int(stop), head=head or None)
    return {text for message in messages for text in strings_in(message.raw)}


def _is_json(text: str) -> bool:
    if text[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def strings_in(value: Any) -> set[str]:
    """Return every string in a JSON value, and in JSON inside its strings (call arguments)."""
    strings: set[str] = set()
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            strings.add(item)
            if _is_json(item):
                waiting.append(json.loads(item))
        elif isinstance(item, dict):
            waiting.extend(item.values())  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(item, list):
            waiting.extend(item)  # pyright: ignore[reportUnknownArgumentType]
    return strings


async def _check_stability(
    payload: list[Json], request: CompactRequest, result: CompactResult, archive: Archive
) -> None:
    """Check that equal input gives equal bytes, and that a compacted list does not change again."""
    again = await compact(payload, request, archive=archive)
    assert _bytes(again.messages) == _bytes(result.messages), "equal input gave other bytes"
    if request.mode == "reactive":
        return  # a rejected list must shrink each time, however small it is
    second_request = replace(
        request, session_id=result.session_id, usage=None, usage_message_index=None
    )
    second = await compact(result.messages, second_request, archive=archive)
    assert _bytes(second.messages) == _bytes(result.messages), "a second compaction changed it"
    assert not second.changed


def _bytes(messages: Sequence[Json]) -> str:
    return json.dumps(messages)

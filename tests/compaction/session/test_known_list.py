"""Cached lists make the next call faster and change no result."""

import copy
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import anyio
import pytest
from context_compaction.archive.local.archive import LocalArchive, open_archive
from context_compaction.errors import CompactionError
from context_compaction.messages.raw import history_hash
from context_compaction.pipeline.compact import compact
from context_compaction.redaction import RedactionMode
from context_compaction.request import CompactRequest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.compaction.pipeline.test_promises import EXAMPLES, LIMIT_SECONDS
from tests.compaction.session.turns import session, turn
from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.small import answered, assistant, user
from tests.support.strategies import FORMATS, conversations, hostile_conversations

WIDE = CompactRequest(format="anthropic", session_id="s", context_window=400_000)
TIMES = frozenset({"at_seconds", "created_seconds", "expires_seconds", "ts"})


def without_times(value: Any) -> Any:
    """Return a JSON value without its times."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: without_times(item) for key, item in fields.items() if key not in TIMES}
    if isinstance(value, list | tuple):
        return [without_times(item) for item in cast("Sequence[Any]", value)]
    return value


def as_text(outcome: Any) -> str:
    """Return a result or an error as text, without times."""
    if isinstance(outcome, CompactionError):
        return f"{type(outcome).__name__}: {outcome}"
    return json.dumps(without_times(asdict(outcome)))


async def outcome_of(payload: list[Json], request: CompactRequest, archive: LocalArchive) -> Any:
    try:
        return await compact(payload, request, archive=archive)
    except CompactionError as error:
        return error


class Host:
    """A host that extends, edits or shortens its list, or adopts a result, between calls."""

    def __init__(self, script: list[Json], request: CompactRequest) -> None:
        self._rest = copy.deepcopy(script)
        self._request = request
        self.payload: list[Json] = []
        self.last: list[Json] = []

    def prepare(self, act: str, number: int) -> CompactRequest:
        """Change the list by the action `act` and return the request for it."""
        if act in REQUEST_CHANGES:
            return replace(self._request, **REQUEST_CHANGES[act])
        if act == "usage" and self.payload:
            usage = {"input_tokens": 100 + number, "output_tokens": 10}
            index = number % len(self.payload)
            return replace(self._request, usage=usage, usage_message_index=index)
        if act in ADDING:
            self.payload = [*self.payload, *self._added(act, number)]
        else:
            self.payload = self._changed(act, number)
        return self._request

    def learn(self, outcome: Any) -> None:
        """Remember the messages of a result."""
        if not isinstance(outcome, CompactionError):
            # Copied, because later actions edit this list and must not edit the cached one.
            self.last = copy.deepcopy(outcome.messages)

    def _changed(self, act: str, number: int) -> list[Json]:
        payload, at = self.payload, number % max(1, len(self.payload))
        match act:
            case "grow":
                count = 1 + number % 5
                new, self._rest = self._rest[:count], self._rest[count:]
                return [*payload, *new]
            case "go back":
                count = 1 + number % 3
                self._rest = [*payload[-count:], *self._rest]
                return payload[:-count]
            case "adopt":
                return list(self.last)
            case "repeat":
                return [*payload, *copy.deepcopy(payload[at : at + 3])]
            case "mark":
                return _marked(payload)
            case _ if not payload:
                return payload
            case "edit in place":
                payload[at]["note"] = f"written {number}"
                return payload
            case "edit":
                edited = {**copy.deepcopy(payload[at]), "note": f"edited {number}"}
            case "reorder fields":
                edited = dict(reversed(payload[at].items()))
            case _:
                return payload
        return [*payload[:at], edited, *payload[at + 1 :]]

    def _added(self, act: str, number: int) -> list[Json]:
        """Return messages in Anthropic's format that rule out the fast path for longer lists."""
        if act == "pinned passage":
            return [user(f"Note: <pin>Passage {number}.</pin>")]
        if act == "other answer":
            return [assistant(f"Another answer {number}."), user("Why?")]
        if act == "call again":
            return answered("r0", "Read", f"again {number}", file_path="f0.py")
        summaries = [m for m in self.last if "<context_summary" in json.dumps(m)]
        return copy.deepcopy(summaries[:1])


def _marked(payload: list[Json]) -> list[Json]:
    """Return `payload` with a single cache marker, on its last message."""
    plain = [{k: v for k, v in message.items() if k != "cache_control"} for message in payload]
    return [*plain[:-1], *({**last, "cache_control": {"type": "ephemeral"}} for last in plain[-1:])]


COMMON_CHANGES: dict[str, Json] = {
    "small": {"context_window": 2_000, "max_output_tokens": 200},
    "full": {"mode": "full"},
    "model": {"model": "gpt-4o"},
    "economy": {"policy": "economy"},
    "record": {"mode": "record"},
}
# Requests that only the scripted conversation makes.
RARE_CHANGES: dict[str, Json] = {
    "another session": {"session_id": "t"},
    "no session": {"session_id": None},
    "idle": {"idle_seconds": 100_000},
    "pin": {"pinned": ("The harbour master is called Ingrid.",)},
    "pin a message": {"pinned_messages": (1,)},
    "unpin": {"unpin": ("The harbour master is called Ingrid.",)},
    "snip": {"snip_messages": (1, 2, 3)},
    "prepare": {"prepare": True, "mode": "full"},
}
REQUEST_CHANGES = COMMON_CHANGES | RARE_CHANGES
ADDING = ("other answer", "pinned passage", "call again", "claim")
ACTIONS = (
    "grow", "grow", "grow", "same", "go back", "edit", "edit in place", "reorder fields", "mark",
    "repeat", "adopt", "small", "full", "usage", "model", "economy", "record",
)  # fmt: skip
NUMBERS = st.integers(0, 30)
STEPS = st.lists(st.tuples(st.sampled_from(ACTIONS), NUMBERS), min_size=4, max_size=12)
REDACTIONS: tuple[RedactionMode, ...] = ("off", "off", "warn", "on")
SESSION_IDS = st.sampled_from([None, "s"])
REQUESTS = st.builds(
    CompactRequest,
    session_id=SESSION_IDS,
    context_window=st.sampled_from([4_000, 30_000, 400_000]),
    max_output_tokens=st.just(500),
)


async def run(
    script: list[Json],
    steps: Sequence[tuple[str, int]],
    request: CompactRequest,
    redaction: RedactionMode = "off",
) -> None:
    """Make each call twice, once with a warm cache and once without one, and compare."""
    with TemporaryDirectory() as folder, anyio.fail_after(LIMIT_SECONDS):
        warm_root, cold_root = Path(folder, "warm"), Path(folder, "cold")
        warm_host, cold_host = Host(script, request), Host(script, request)
        async with open_archive(
            warm_root, index_root=warm_root / "index", redaction=redaction
        ) as warm_archive:
            for act, number in [("grow", 4), *steps]:
                warm_request = warm_host.prepare(act, number)
                warm = await outcome_of(warm_host.payload, warm_request, warm_archive)
                cold_request = cold_host.prepare(act, number)
                async with open_archive(
                    cold_root, index_root=cold_root / "index", redaction=redaction
                ) as cold_archive:
                    cold = await outcome_of(cold_host.payload, cold_request, cold_archive)
                assert as_text(warm) == as_text(cold), act
                warm_host.learn(warm)
                cold_host.learn(cold)


@pytest.mark.timeout(LIMIT_SECONDS)
@pytest.mark.parametrize("format", FORMATS)
@settings(EXAMPLES, max_examples=EXAMPLES.max_examples // 2)
@given(data=st.data(), request=REQUESTS, hostile=st.booleans())
def test_cached_lists_change_no_result(
    format: str, data: st.DataObject, request: CompactRequest, hostile: bool
) -> None:
    script = data.draw(hostile_conversations(format) if hostile else conversations(format))
    steps = data.draw(STEPS)
    request = replace(request, format=format if hostile or data.draw(st.booleans()) else None)
    redaction = data.draw(st.sampled_from(REDACTIONS))
    anyio.run(run, script, steps, request, redaction)


SCRIPTED = st.lists(
    st.tuples(
        st.sampled_from([
            *("grow", "grow", "grow", "same", "adopt", "go back", "full"),
            *("edit in place", "edit", "reorder fields", "mark", *ADDING, *RARE_CHANGES),
        ]),
        NUMBERS,
    ),
    min_size=3,
    max_size=9,
)


@pytest.mark.timeout(LIMIT_SECONDS)
@EXAMPLES
@given(steps=SCRIPTED, window=st.sampled_from([40_000, 400_000]), session_id=SESSION_IDS)
@example([("same", 0), ("no session", 0), ("grow", 4), ("no session", 0)], 400_000, "s")
@example([("grow", 4), ("idle", 0), ("same", 0)], 40_000, None)
@example([("same", 0), ("call again", 0), ("same", 0)], 400_000, None)
@example([("full", 0), ("adopt", 0), ("claim", 0), ("same", 0)], 400_000, None)
@example([("go back", 2), ("go back", 0), ("other answer", 0), ("other answer", 1)], 400_000, None)
@example([("grow", 4), ("full", 0), ("same", 0), *[("go back", 2)] * 3], 400_000, "s")
@example([("grow", 4), ("mark", 0), ("full", 0), ("mark", 0), ("same", 0)], 400_000, "s")
def test_cached_lists_change_no_result_between_other_calls(
    steps: list[tuple[str, int]], window: int, session_id: str | None
) -> None:
    request = replace(WIDE, session_id=session_id, context_window=window, max_output_tokens=1_000)
    anyio.run(run, session(8), steps, request)


@pytest.mark.anyio
async def test_cached_list_notices_writes_of_another_process(tmp_path: Path) -> None:
    request = replace(WIDE, context_window=12_000, max_output_tokens=1_000)
    async with (
        open_archive(tmp_path / "a", index_root=tmp_path / "i") as first,
        open_archive(tmp_path / "a", index_root=tmp_path / "j") as second,
    ):
        await compact(session(20, 30), WIDE, archive=first)
        compacted = await compact(session(20, 30), replace(request, mode="full"), archive=second)
        grown = await compact(session(21, 30), WIDE, archive=first)
    assert compacted.status == grown.status == "compacted"
    assert json.dumps(grown.messages[:1]) == json.dumps(compacted.messages[:1])


@pytest.mark.anyio
async def test_current_context_allows_repeated_summary_text() -> None:
    async with temporary_archive() as archive:
        full = await compact(session(30, 30), replace(WIDE, mode="full"), archive=archive)
        payload = [*full.messages, *turn(50, 30), *copy.deepcopy(full.messages[:4])]
        result = await compact(payload, WIDE, archive=archive)
        _, context = await archive.context("s")
    assert history_hash(context) == history_hash(result.messages)

"""Cached lists change no result: they only make the next call faster."""

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
from context_compaction.messages.history_hash import history_hash
from context_compaction.pipeline.compact import compact
from context_compaction.redaction import RedactionMode
from context_compaction.request import CompactRequest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.compaction.pipeline.test_promises import EXAMPLES, LIMIT_SECONDS
from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.small import answered, assistant, lines, user
from tests.support.strategies import FORMATS, conversations, hostile_conversations

WIDE = CompactRequest(format="anthropic", session_id="s", context_window=400_000)
TIMES = frozenset({"at_seconds", "created_seconds", "expires_seconds", "ts"})


def timeless(value: Any) -> Any:
    """A JSON value without its times."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: timeless(item) for key, item in fields.items() if key not in TIMES}
    if isinstance(value, list | tuple):
        return [timeless(item) for item in cast("Sequence[Any]", value)]
    return value


def told(outcome: Any) -> str:
    """All that a call answers, to the byte, but for times."""
    if isinstance(outcome, CompactionError):
        return f"{type(outcome).__name__}: {outcome}"
    return json.dumps(timeless(asdict(outcome)))


async def outcome_of(payload: list[Json], request: CompactRequest, archive: LocalArchive) -> Any:
    try:
        return await compact(payload, request, archive=archive)
    except CompactionError as error:
        return error


class Host:
    """An agent that grows a list, edits it, goes back, adopts what it gets, and asks for this."""

    def __init__(self, script: list[Json], request: CompactRequest) -> None:
        self._rest = copy.deepcopy(script)
        self._wishes = request
        self.payload: list[Json] = []
        self.last: list[Json] = []

    def prepare(self, act: str, number: int) -> CompactRequest:
        """Bring the list into its next state; what is then asked of it."""
        if act in ASKED:
            return replace(self._wishes, **ASKED[act])
        if act == "usage" and self.payload:
            usage = {"input_tokens": 100 + number, "output_tokens": 10}
            at = number % len(self.payload)
            return replace(self._wishes, usage=usage, usage_message_index=at)
        said = [*self.payload, *self._said(act, number)] if act in SAID else None
        self.payload = self._changed(act, number) if said is None else said
        return self._wishes

    def learn(self, outcome: Any) -> None:
        """Take in an answer."""
        if not isinstance(outcome, CompactionError):
            # What a session goes on from belongs to nobody.
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
            case "say again":
                return [*payload, *copy.deepcopy(payload[at : at + 3])]
            case "mark":
                return _marked(payload)
            case _ if not payload:
                return payload
            case "write into":
                payload[at]["note"] = f"written {number}"
                return payload
            case "edit":
                edited = {**copy.deepcopy(payload[at]), "note": f"edited {number}"}
            case "order":
                edited = dict(reversed(payload[at].items()))
            case _:
                return payload
        return [*payload[:at], edited, *payload[at + 1 :]]

    def _said(self, act: str, number: int) -> list[Json]:
        """Messages (of Anthropic's format) that only the whole line of a call may take in."""
        if act == "mark a passage":
            return [user(f"Note: <pin>Passage {number}.</pin>")]
        if act == "ask else":
            return [assistant(f"Another answer {number}."), user("Why?")]
        if act == "call again":
            return answered("r0", "Read", f"again {number}", file_path="f0.py")
        ours = [m for m in self.last if "<context_summary" in json.dumps(m)]
        return copy.deepcopy(ours[:1])


def _marked(payload: list[Json]) -> list[Json]:
    """The same with one cache marker, at its end."""
    plain = [{k: v for k, v in message.items() if k != "cache_control"} for message in payload]
    return [*plain[:-1], *({**last, "cache_control": {"type": "ephemeral"}} for last in plain[-1:])]


USUAL: dict[str, Json] = {
    "small": {"context_window": 2_000, "max_output_tokens": 200},
    "full": {"mode": "full"},
    "model": {"model": "gpt-4o"},
    "economy": {"policy": "economy"},
    "record": {"mode": "record"},
}
# Rarer wishes, which the generated conversations are not asked.
RARE: dict[str, Json] = {
    "another session": {"session_id": "t"},
    "no session": {"session_id": None},
    "rested": {"idle_seconds": 100_000},
    "pin": {"pinned": ("The harbour master is called Ingrid.",)},
    "pin a message": {"pinned_messages": (1,)},
    "unpin": {"unpin": ("The harbour master is called Ingrid.",)},
    "snip": {"snip_messages": (1, 2, 3)},
    "prepare": {"prepare": True, "mode": "full"},
}
ASKED = USUAL | RARE
SAID = ("ask else", "mark a passage", "call again", "claim")
WHOLE = (
    "grow", "grow", "grow", "same", "go back", "edit", "write into", "order", "mark", "say again",
    "adopt", "small", "full", "usage", "model", "economy", "record",
)  # fmt: skip
NUMBERS = st.integers(0, 30)
STEPS = st.lists(st.tuples(st.sampled_from(WHOLE), NUMBERS), min_size=4, max_size=12)
REDACTIONS: tuple[RedactionMode, ...] = ("off", "off", "warn", "on")
REQUESTED = st.sampled_from([None, "s"])
REQUESTS = st.builds(
    CompactRequest,
    session_id=REQUESTED,
    context_window=st.sampled_from([4_000, 30_000, 400_000]),
    max_output_tokens=st.just(500),
)


async def run(
    script: list[Json],
    steps: Sequence[tuple[str, int]],
    request: CompactRequest,
    redaction: RedactionMode = "off",
) -> None:
    """The calls of one host twice: to one process, and each to one that knows nothing yet."""
    with TemporaryDirectory() as folder, anyio.fail_after(LIMIT_SECONDS):
        one, other = Path(folder, "one"), Path(folder, "other")
        known, fresh = Host(script, request), Host(script, request)
        async with open_archive(one, index_root=one / "index", redaction=redaction) as archive:
            for act, number in [("grow", 4), *steps]:
                asked = known.prepare(act, number), fresh.prepare(act, number)
                first = await outcome_of(known.payload, asked[0], archive)
                async with open_archive(
                    other, index_root=other / "index", redaction=redaction
                ) as anew:
                    second = await outcome_of(fresh.payload, asked[1], anew)
                assert told(first) == told(second), act
                known.learn(first)
                fresh.learn(second)


@pytest.mark.timeout(LIMIT_SECONDS)
@pytest.mark.parametrize("format", FORMATS)
@EXAMPLES
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
            *("write into", "edit", "order", "mark", *SAID, *RARE),
        ]),
        NUMBERS,
    ),
    min_size=3,
    max_size=9,
)


@pytest.mark.timeout(LIMIT_SECONDS)
@EXAMPLES
@given(steps=SCRIPTED, window=st.sampled_from([40_000, 400_000]), session_id=REQUESTED)
@example([("same", 0), ("no session", 0), ("grow", 4), ("no session", 0)], 400_000, "s")
@example([("grow", 4), ("rested", 0), ("same", 0)], 40_000, None)
@example([("same", 0), ("call again", 0), ("same", 0)], 400_000, None)
@example([("full", 0), ("adopt", 0), ("claim", 0), ("same", 0)], 400_000, None)
@example([("go back", 2), ("go back", 0), ("ask else", 0), ("ask else", 1)], 400_000, None)
@example([("grow", 4), ("full", 0), ("same", 0), *[("go back", 2)] * 3], 400_000, "s")
@example([("grow", 4), ("mark", 0), ("full", 0), ("mark", 0), ("same", 0)], 400_000, "s")
def test_cached_lists_change_no_result_between_other_calls(
    steps: list[tuple[str, int]], window: int, session_id: str | None
) -> None:
    request = replace(WIDE, session_id=session_id, context_window=window, max_output_tokens=1_000)
    anyio.run(run, [m for n in range(8) for m in turn(n, result_lines=120)], steps, request)


def turn(number: int, result_lines: int = 30) -> list[Json]:
    return [
        user(f"Task {number}: look at f{number}.py."),
        *answered(
            f"r{number}", "Read", lines(f"n{number}", result_lines), file_path=f"f{number}.py"
        ),
        assistant(f"I have seen f{number}.py."),
    ]


def session(turns: int) -> list[Json]:
    return [message for number in range(turns) for message in turn(number)]


@pytest.mark.anyio
async def test_cached_list_notices_edits_by_the_host() -> None:
    async with temporary_archive() as archive:
        payload = session(20)
        await compact(payload, WIDE, archive=archive)
        payload[2]["content"][0]["content"] = "x" * 4_000
        changed = await compact(payload, WIDE, archive=archive)
        changed.receipt["warnings"].append("of the host's own")
        changed.messages[0]["content"] = "Another task."
        again = await compact(payload, WIDE, archive=archive)
    async with temporary_archive() as archive:
        anew = await compact(payload, WIDE, archive=archive)
    assert again.messages[0]["content"] == "Another task."
    assert again.tokens == anew.tokens
    assert again.receipt["warnings"] == []


@pytest.mark.anyio
async def test_cached_list_notices_writes_of_another_process(tmp_path: Path) -> None:
    request = replace(WIDE, context_window=12_000, max_output_tokens=1_000)
    async with (
        open_archive(tmp_path / "a", index_root=tmp_path / "i") as one,
        open_archive(tmp_path / "a", index_root=tmp_path / "j") as other,
    ):
        await compact(session(20), WIDE, archive=one)
        compacted = await compact(session(20), replace(request, mode="full"), archive=other)
        grown = await compact(session(21), WIDE, archive=one)
    assert compacted.status == grown.status == "compacted"
    assert json.dumps(grown.messages[:1]) == json.dumps(compacted.messages[:1])


@pytest.mark.anyio
async def test_current_context_allows_repeated_summary_text() -> None:
    async with temporary_archive() as archive:
        full = await compact(session(30), replace(WIDE, mode="full"), archive=archive)
        payload = [*full.messages, *turn(50), *copy.deepcopy(full.messages[:4])]
        result = await compact(payload, WIDE, archive=archive)
        _, context = await archive.context("s")
    assert history_hash(context) == history_hash(result.messages)

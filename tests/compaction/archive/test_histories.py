"""Interleaved, edited and resumed conversations with a common start stay separate."""

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from context_compaction.archive.archive import Archive
from context_compaction.archive.values import Query
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.rendering import render
from tests.support.script import Call, Part, Step, Turn
from tests.support.strategies import FORMATS

POINTER = re.compile(r"transcript://([\w.:-]+)/messages/(\d+)-(\d+)(?:@([0-9a-f]{12}))?")
OUTPUT = re.compile(r"o_[0-9a-f]{24}")
# The nightly profile has forty times as many examples.
LIMIT_SECONDS = 7_200 if settings().max_examples > 1_000 else 240
WORD = re.compile(r"(?:same|left|right)\d{3}q")


def turn(word: str) -> Turn:
    """Return a turn whose messages all contain `word`, with texts that summaries usually carry."""
    text = f"Please look at {word}.py. Never touch {word}_secret.py, always use {word}lib instead."
    content = "\n".join(f"def {word}_{line}(x): return x * {line}" for line in range(12))
    call = Call("Read", {"file_path": f"/srv/{word}.py"}, (Part("text", content),))
    step = Step((call,), text=f"I read {word}.py now.")
    return Turn((Part("text", text),), (step,), f"The file {word}.py has a fault: {word}Error.")


@dataclass
class Host:
    """A host that passes its whole conversation, or the result of its last compaction.

    Attributes:
        name: Prefix of the words in its own turns.
        format: Format of its messages.
        session_id: ID of its session, or None.
        turns: Its turns, without those that were edited.
        context: Compacted list that replaces the first `covered` turns.
        covered: Number of turns that `context` replaces.
    """

    name: str
    format: str
    session_id: str | None
    turns: list[Turn] = field(default_factory=list[Turn])
    numbers: Iterator[int] = field(default_factory=itertools.count)
    context: list[Json] = field(default_factory=list[Json])
    covered: int = 0

    def add_turn(self) -> None:
        self.turns.append(turn(f"{self.name}{next(self.numbers):03}q"))

    def edit(self, place: int, *, keeps_rest: bool) -> None:
        """Replace a turn that no compaction has seen yet."""
        fresh = len(self.turns) - self.covered
        if fresh:
            index = self.covered + place % fresh
            rest = self.turns[index + 1 :] if keeps_rest else []
            self.turns[index:] = [turn(f"{self.name}{next(self.numbers):03}q"), *rest]

    def messages(self) -> list[Json]:
        seen = len(render(self.turns[: self.covered], self.format))
        return [*self.context, *render(self.turns, self.format)[seen:]]

    def words(self) -> set[str]:
        return set(WORD.findall(str(self.turns)))

    async def call(self, archive: Archive, mode: Any, *, resumes: bool) -> CompactResult:
        request = CompactRequest(
            mode=mode, format=self.format, target_tokens=1_500, session_id=self.session_id
        )
        result = await compact(self.messages(), request, archive=archive)
        if result.changed and resumes:
            self.context, self.covered = result.messages, len(self.turns)
        return result


STEPS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from([
            "add turn",
            "add turn",
            "edit",
            "edit, keep the rest",
            "record",
            "auto",
            "full",
        ]),
        st.integers(0, 5),
        st.booleans(),
    ),
    min_size=4,
    max_size=14,
)


@pytest.mark.timeout(LIMIT_SECONDS)
@settings(max_examples=max(5, settings().max_examples // 20), deadline=None)
@given(
    format=st.sampled_from(FORMATS),
    is_named=st.booleans(),
    shared=st.integers(0, 3),
    steps=STEPS,
)
async def test_compact_shows_only_the_words_of_its_conversation_when_sessions_are_shared(
    format: str, is_named: bool, shared: int, steps: list[tuple[int, str, int, bool]]
) -> None:
    started = [turn(f"same{number:03}q") for number in range(shared)]
    session_id = "s" if is_named else None
    hosts = [Host(name, format, session_id, [*started]) for name in ("left", "right")]
    async with temporary_archive() as archive:
        for host_index, action, place, resumes in [*steps, *LAST_STEPS]:
            host = hosts[host_index]
            if action == "add turn":
                host.add_turn()
            elif action.startswith("edit"):
                host.edit(place, keeps_rest=action != "edit")
            elif host.turns:
                result = await host.call(archive, action, resumes=resumes)
                await check_words(result, host.words(), archive)


# Both hosts end with two compactions; the second one reads the context of the first one.
LAST_STEPS = [
    (host_index, action, 0, True)
    for action in (*["add turn"] * 4, "full", *["add turn"] * 3, "full")
    for host_index in (0, 1)
]


async def check_words(result: CompactResult, own_words: set[str], archive: Archive) -> None:
    """Check that texts and pointers of the result contain only words of the conversation."""
    text = json.dumps([result.messages, result.receipt, result.summary, result.warnings])
    assert set(WORD.findall(text)) <= own_words
    heads: set[str] = set()
    for session_id, start, stop, head in set(POINTER.findall(text)):
        assert session_id == result.session_id
        found = await archive.read_messages(session_id, int(start), int(stop), head=head or None)
        assert found
        assert set(WORD.findall(str([message.raw for message in found]))) <= own_words
        heads |= {head} - {""}
    for output_id in set(OUTPUT.findall(json.dumps(result.messages))):
        data = (await archive.read_output(output_id)).data
        assert set(WORD.findall(data.decode())) <= own_words
    for head in sorted(heads):
        history = await archive.history(result.session_id, head)
        assert history.seqs
        for query in (
            Query("secret fault file look", session_id=result.session_id, head=head, limit=100),
            Query(r"\w+q_secret", "regex", session_id=result.session_id, head=head, limit=100),
        ):
            page = await archive.search(query)
            assert page.hits
            assert set(WORD.findall(str([hit.snippet for hit in page.hits]))) <= own_words


@pytest.mark.timeout(LIMIT_SECONDS)
@settings(max_examples=max(5, settings().max_examples // 20), deadline=None)
@given(
    window=st.integers(2, 12),
    sizes=st.lists(st.integers(1, 3), min_size=2, max_size=25),
    dated=st.booleans(),
    repeats=st.booleans(),
)
async def test_archive_stores_each_message_once_when_a_window_slides(
    window: int, sizes: list[int], dated: bool, repeats: bool
) -> None:
    texts = [f"message {n}" if not repeats or n % 3 else "go on" for n in range(sum(sizes))]
    roles = itertools.cycle(("user", "assistant"))
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    stop = dated_count = 0
    async with temporary_archive() as archive:
        for number, size in enumerate(sizes):
            stop += size
            payload = messages[max(0, stop - max(window, size + 2)) : stop]
            if dated:
                payload = [{"role": "user", "content": f"It is minute {number}."}, *payload]
                dated_count += 1
            request = CompactRequest(mode="record", session_id="s", format="anthropic")
            await compact(payload, request, archive=archive)
            (branch, *_), _count = await archive.branches("s", limit=1)
            found = await archive.read_messages("s", 0, 10_000, head=branch.head)
            assert [message.raw for message in found] == payload
        info = await archive.session_info("s")
        distinct_count = len(messages) + dated_count
        assert distinct_count <= info.message_count <= distinct_count + MAX_DUPLICATES
        assert await all_are_found(archive, messages)


# The first windows share too few messages to be recognized, so these may be stored again.
MAX_DUPLICATES = 3


async def all_are_found(archive: Archive, messages: list[Json]) -> bool:
    for message in messages:
        query = Query(message["content"], "phrase", session_id="s")
        if not (await archive.search(query)).total:
            return False
    return True

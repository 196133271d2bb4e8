"""Contract of every archive: one check for each promise, run on an empty archive.

Test modules run each check of `CONTRACT` with its own archive.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any
from unicodedata import normalize

import pytest
from context_compaction import formats
from context_compaction.archive.archive import Archive
from context_compaction.archive.documents import HOST_TOOL, TITLE_TOOL
from context_compaction.archive.values import AccessToken, ContextEntry, Hit, PruneRules, Query
from context_compaction.errors import InvalidMessageError, NotFoundError, QueryError, SettingsError
from context_compaction.messages.model import Blob, Message, make_blob, make_message, output_id_of
from context_compaction.messages.raw import history_hash
from context_compaction.request import DEFAULT_TENANT

Json = dict[str, Any]
Check = Callable[[Archive], Awaitable[None]]

CONTRACT: list[Check] = []

FORMAT = "anthropic"


def promise(check: Check) -> Check:
    """Add `check` to the contract."""
    CONTRACT.append(check)
    return check


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def assistant(text: str) -> Json:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def call(call_id: str, name: str, **arguments: Any) -> Json:
    use = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
    return {"role": "assistant", "content": [use]}


def result(call_id: str, text: str) -> Json:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    return {"role": "user", "content": [block]}


def parsed(*raws: Json) -> tuple[Message, ...]:
    return formats.parse(raws, format=FORMAT)


async def add(archive: Archive, session_id: str, *raws: Json) -> tuple[int, ...]:
    """Append a list and return the numbers of its messages."""
    return (await archive.append(session_id, parsed(*raws), format=FORMAT)).seqs


async def transcript(archive: Archive, session_id: str) -> list[Json]:
    return [message.raw for message in await archive.read_messages(session_id, 0, 1_000_000)]


async def found(archive: Archive, text: str, **settings: Any) -> list[str]:
    """Return the pointers of the hits."""
    return [hit.pointer for hit in (await archive.search(Query(text, **settings))).hits]


def pointers(session_id: str, *seqs: int) -> list[str]:
    return [f"transcript://{session_id}/messages/{seq}-{seq}" for seq in seqs]


# Transcripts


@promise
async def append_writes_only_new_messages_when_the_cache_marker_moves(archive: Archive) -> None:
    def marked(text: str) -> Json:
        mark = {"type": "ephemeral"}
        return {"role": "user", "content": [{"type": "text", "text": text, "cache_control": mark}]}

    assert await add(archive, "s_1", user("one"), assistant("two"), marked("three")) == (0, 1, 2)
    again = [marked("one"), assistant("two"), user("three"), assistant("four"), marked("five")]
    assert await add(archive, "s_1", *again) == (0, 1, 2, 3, 4)
    assert len(await transcript(archive, "s_1")) == 5


@promise
async def context_name_is_the_hash_of_the_context(archive: Archive) -> None:
    async def check() -> None:
        _, context = await archive.context("s")
        assert await archive.context_name("s") == history_hash(context)

    with pytest.raises(NotFoundError):
        await archive.context_name("s")
    conversation = [user("one"), assistant("two"), user("three")]
    first = await archive.append("s", parsed(*conversation), format=FORMAT)
    await check()
    summary = ContextEntry(-1, user("summary"))
    await archive.commit(
        "s", receipt={}, context=[summary, ContextEntry(2, conversation[2])], head=first.head
    )
    await check()
    await add(archive, "s", *conversation, assistant("four"))
    await check()
    await add(archive, "s", summary.raw, conversation[2], assistant("five"))
    await check()


@promise
async def context_keeps_the_form_of_equal_texts(archive: Archive) -> None:
    conversation = [user("one"), assistant("two"), user("three")]
    first = await archive.append("s", parsed(*conversation), format=FORMAT)
    forms = [user("short"), {"role": "user", "content": [{"type": "text", "text": "short"}]}]
    for one, other in (forms, forms[::-1]):
        entries = [
            ContextEntry(-1, one, source_seq=0),
            ContextEntry(1, conversation[1]),
            ContextEntry(-1, other, source_seq=2),
        ]
        await archive.commit("s", receipt={}, context=entries, head=first.head)
        _, context = await archive.context("s")
        assert context == [one, conversation[1], other]


@promise
async def a_repair_without_progress_is_no_compaction(archive: Archive) -> None:
    conversation, summary, fixed = [user("one"), assistant("two")], user("summary"), user("fixed")
    for status in ("repaired", "no_progress"):
        first = await archive.append(status, parsed(*conversation), format=FORMAT)
        receipt = {"status": "compacted", "tokens": {"before": 9, "after": 5}}
        made = ContextEntry(-1, summary)
        await archive.commit(status, receipt=receipt, context=[made], head=first.head)
        second = await archive.append(status, parsed(summary, user("four")), format=FORMAT)
        repaired = [made, ContextEntry(-1, fixed, source_seq=2)]
        await archive.commit(status, receipt={"status": status}, context=repaired, head=second.head)
        third = await archive.append(status, parsed(summary, fixed), format=FORMAT)
        number, entries = await archive.list_before(status, None, third.heads)
        assert (number, [entry.raw for entry in entries]) == (0, [*conversation, user("four")])


@promise
async def append_writes_only_new_messages_when_a_window_slides(archive: Archive) -> None:
    conversation = [user(f"word {n}") if n % 2 else assistant(f"answer {n}") for n in range(120)]
    for stop in range(2, 121, 2):
        window = conversation[max(0, stop - 40) : stop]
        seqs = await add(archive, "s", *window)
        assert seqs == tuple(range(stop - len(window), stop))
    assert await transcript(archive, "s") == conversation
    assert await found(archive, "77", session_id="s") == pointers("s", 77)


@promise
async def append_writes_the_first_message_again_when_the_host_rewrites_it(archive: Archive) -> None:
    conversation = [user(f"word {n}") if n % 2 else assistant(f"answer {n}") for n in range(1, 120)]
    result = None
    for stop in range(2, 120, 2):
        dated = user(f"It is minute {stop}.")
        raws = [dated, *conversation[:stop]]
        result = await archive.append("s", parsed(*raws), format=FORMAT)
        history = await archive.read_messages("s", 0, 1_000_000, head=result.head)
        assert [message.raw for message in history] == raws
    stored = await transcript(archive, "s")
    assert len(stored) == 118 + 59, "the messages, and each version of the first message"
    expected = pointers("s", stored.index(assistant("answer 76")))
    assert await found(archive, "answer 76", session_id="s", kind="phrase") == expected


@promise
async def read_messages_returns_a_branch_when_a_head_is_given(archive: Archive) -> None:
    start = [user("one"), assistant("two")]
    first = await archive.append("s", parsed(*start, user("left")), format=FORMAT)
    second = await archive.append(
        "s", parsed(*start, user("right"), assistant("fine")), format=FORMAT
    )
    assert second.forks_at == 2

    async def read(head: str) -> list[Any]:
        return [m.raw for m in await archive.read_messages("s", 0, 99, head=head)]

    assert await read(first.head[:12]) == [*start, user("left")]
    assert await read(second.head) == [*start, user("right"), assistant("fine")]
    assert (await archive.history("s", second.heads[2])).seqs == (0, 1, 3)
    branches, count = await archive.branches("s")
    assert [branch.head for branch in branches] == [second.head[:12], first.head[:12]]
    assert count == 2
    with pytest.raises(NotFoundError, match="no branch"):
        await archive.read_messages("s", 0, 9, head="0" * 12)


@promise
async def search_finds_a_branch_when_a_head_is_given(archive: Archive) -> None:
    start = [user("which colour?"), assistant("a colour of yours")]
    red_branch = await archive.append("s", parsed(*start, user("the colour red")), format=FORMAT)
    blue_branch = await archive.append("s", parsed(*start, user("the colour blue")), format=FORMAT)
    for appended, colour in ((red_branch, "red"), (blue_branch, "blue")):
        blob = make_blob(f"colour chart of {colour}")
        await archive.commit("s", blobs=[blob], receipt={"of": colour}, head=appended.head)
    all_hits = await found(archive, "colour", session_id="s")
    assert len(all_hits) == 6
    for appended, colour in ((red_branch, "red"), (blue_branch, "blue")):
        for head in (appended.head, appended.head[:12]):
            query = Query("colour", session_id="s", head=head)
            for variant in (
                query,
                replace(query, kind="phrase"),
                replace(query, kind="regex"),
                replace(query, order="recent"),
            ):
                page = await archive.search(variant)
                texts = [hit.snippet for hit in page.hits]
                assert len(texts) == 4
                assert sum(colour in text for text in texts) == 2
    (hit,) = (await archive.search(Query("red", session_id="s", role="user"))).hits
    assert (hit.seq, hit.head) == (2, red_branch.head[:12])
    with pytest.raises(NotFoundError, match="no branch"):
        await archive.search(Query("colour", session_id="s", head="0" * 12))
    with pytest.raises(QueryError, match="session"):
        await archive.search(Query("colour", head=red_branch.head))


@promise
async def short_repeated_message_is_a_new_message(archive: Archive) -> None:
    conversation = [user("go on"), assistant("done")] * 2 + [user("go on")]
    for _ in range(2):
        assert await add(archive, "s", *conversation) == (0, 1, 2, 3, 4)
    assert await add(archive, "s", user("other"), assistant("well"), user("go on")) == (5, 6, 7)


@promise
async def branch_continues_through_the_summary_in_it(archive: Archive) -> None:
    raws = [user("one"), assistant("two"), user("three"), assistant("four")]
    appended = await archive.append("s", parsed(*raws), format=FORMAT)
    summary = user("a summary of one and two")
    context = [ContextEntry(-1, summary, replaced_head=appended.heads[1][:12])]
    context += [ContextEntry(seq, raws[seq]) for seq in (2, 3)]
    await archive.commit("s", receipt={"round": 1}, context=context, head=appended.head)
    grown = await archive.append("s", parsed(summary, *raws[2:], user("five")), format=FORMAT)
    assert grown.seqs == (-1, 2, 3, 4)
    assert (await archive.history("s", grown.head)).seqs == (0, 1, 2, 3, 4)
    assert await archive.receipts("s", heads=grown.heads) == [{"round": 1}]
    sibling = await archive.append("s", parsed(*raws[:2], user("else")), format=FORMAT)
    assert await archive.receipts("s", heads=sibling.heads) == []
    # The summary is recognized at any position.
    moved = await archive.append(
        "s", parsed(user("today"), summary, *raws[2:], user("six")), format=FORMAT
    )
    assert moved.seqs[1] == -1
    assert (await archive.history("s", moved.head)).seqs == (6, 0, 1, 2, 3, 7)


@promise
async def context_is_matched_when_only_messages_of_the_host_differ(archive: Archive) -> None:
    start = [user("one"), assistant("two"), user("three"), assistant("four")]
    rest = [user("five"), assistant("six")]
    first = await archive.append("s", parsed(*start, *rest), format=FORMAT)
    context = [ContextEntry(-1, user("summary"), replaced_head=first.heads[3][:12])]
    context += [ContextEntry(seq, raw) for seq, raw in enumerate(rest, 4)]
    await archive.commit("s", receipt={}, context=context, head=first.head)

    async def matched_count(*raws: Json) -> int | None:
        result = await archive.append("s", parsed(*raws), format=FORMAT, dry_run=True)
        return None if result.matched_context is None else result.matched_context.message_count

    reminder = user("It is 10:05.")
    assert await matched_count(*start, *rest, user("seven")) == 6
    assert await matched_count(*start[:2], reminder, *start[2:], *rest, user("seven")) == 7
    assert await matched_count(user("one, at 10:05"), *start[1:], *rest) == 6
    # Another agent continues the start of the list, so a context may describe the first agent's
    # work.
    assert await matched_count(*start, user("5"), assistant("6")) is None
    assert await matched_count(*start, rest[0], assistant("6")) is None
    assert await matched_count(user("1"), assistant("two"), user("3"), assistant("4")) is None


@promise
async def message_is_read_unchanged(archive: Archive) -> None:
    odd = {
        "role": "assistant",
        "x-unknown": {"$blob": "natural", "$$blob": 1, "x$blob": None, "half": "\ud83d"},
        "content": [
            {"type": "text", "text": "a\u2028b\r\nc", "cache_control": {"type": "ephemeral"}}
        ],
    }
    assert await add(archive, "s", user("hello"), odd) == (0, 1)
    assert await transcript(archive, "s") == [user("hello"), odd]
    (message,) = await archive.read_messages("s", 1, 1)
    assert (message.session_id, message.seq, message.format) == ("s", 1, FORMAT)
    assert list(message.raw) == list(odd), "keys keep the order of the host"


@promise
async def large_strings_are_read_unchanged_at_any_position(archive: Archive) -> None:
    large = "ü" * 40_000 + "\ud800\n" * 3 + "end"
    odd: Json = {
        "$blob": large,
        "$$blob": {"$blob": large},
        "list": [large, {"a": large}],
    }
    raw = user("see below") | {"extra": odd}
    await add(archive, "s", raw, call("c1", "Write", content=large), result("c1", large * 3))
    assert await transcript(archive, "s") == [
        raw,
        call("c1", "Write", content=large),
        result("c1", large * 3),
    ]


@promise
async def pattern_matches_large_and_escaped_strings(archive: Archive) -> None:
    large = "x" * 70_000 + " ZXPlant7QuirkError"
    function = {"name": "find", "arguments": r'{"what": "a \u005aXPlant8QuirkError"}'}
    calls = [{"id": "c", "type": "function", "function": function}]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    messages = formats.parse([user(large), message], format="openai-chat")
    await archive.append("s", messages, format="openai-chat")
    assert sorted(await found(archive, r"ZXPlant\dQuirk", kind="regex")) == pointers("s", 0, 1)
    assert await found(archive, r"[WY]XPlant\dQuirk|Plant8Qu", kind="regex") == pointers("s", 1)


@promise
async def access_token_exists_for_its_tenant_until_it_is_revoked(archive: Archive) -> None:
    first = AccessToken("0a1b", "robin", ("read",), "ab" * 32, 1.0, None)
    second = AccessToken("0c2d", "casey", ("read", "write"), "cd" * 32, 2.0, 99.5)
    for token in (second, first):
        await archive.keep_token(token)
    assert await archive.tokens() == [first, second]
    assert await archive.token("0c2d") == second
    for unknown in ("", "ffff", "../0a1b", "0a1b.json", "0A1B"):
        assert await archive.token(unknown) is None
        assert not await archive.revoke_token(unknown)
    other = await archive.for_tenant("other")
    assert await other.tokens() == []
    assert await other.token("0a1b") is None
    assert not await other.revoke_token("0a1b")
    await other.keep_token(replace(first, token_id="0e3f"))
    assert (await archive.token("0e3f", tenant="other")) == replace(first, token_id="0e3f")
    for unknown in ("other", "nobody"):
        assert await archive.token("0a1b", tenant=unknown) is None
    with pytest.raises(SettingsError):
        await archive.token("0a1b", tenant="../other")
    assert await archive.revoke_token("0a1b")
    assert not await archive.revoke_token("0a1b")
    assert await archive.tokens() == [second]


@promise
async def append_writes_only_new_messages_when_a_list_grows(archive: Archive) -> None:
    history = [user("one"), assistant("two")]
    first = await archive.append("s", parsed(*history), format=FORMAT)
    again = await archive.append("s", parsed(*history), format=FORMAT)
    grown = await archive.append("s", parsed(*history, user("three")), format=FORMAT)
    assert (first.seqs, first.written) == ((0, 1), 2)
    assert (again.seqs, again.written) == ((0, 1), 0)
    assert (grown.seqs, grown.written) == ((0, 1, 2), 1)
    assert len(await transcript(archive, "s")) == 3


@promise
async def message_is_the_same_when_its_keys_have_another_order(archive: Archive) -> None:
    await add(archive, "s", {"role": "user", "content": "x"})
    reordered = await archive.append("s", parsed({"content": "x", "role": "user"}), format=FORMAT)
    assert reordered.written == 0


@promise
async def edited_list_becomes_a_branch(archive: Archive) -> None:
    await add(archive, "s", user("one"), assistant("two"), user("three"))
    assert await add(archive, "s", user("one"), assistant("TWO"), user("three")) == (0, 3, 4)
    assert await add(archive, "s", user("one"), assistant("two"), user("3")) == (0, 1, 5)
    assert await add(archive, "s", user("one"), assistant("TWO"), user("three")) == (0, 3, 4)
    assert await transcript(archive, "s") == [
        user("one"), assistant("two"), user("three"), assistant("TWO"), user("three"), user("3"),
    ]  # fmt: skip
    assert await archive.context("s") == (FORMAT, [user("one"), assistant("two"), user("3")])


@promise
async def dry_run_reports_numbers_without_writing(archive: Archive) -> None:
    messages = parsed(user("one"), assistant("two"))
    dry = await archive.append("s", messages, format=FORMAT, dry_run=True)
    assert (dry.seqs, dry.written) == ((0, 1), 2)
    with pytest.raises(NotFoundError):
        await archive.session_info("s")
    await archive.append("s", messages[:1], format=FORMAT)
    dry = await archive.append("s", messages, format=FORMAT, dry_run=True)
    assert (dry.seqs, dry.written) == ((0, 1), 1)
    assert await transcript(archive, "s") == [user("one")]


@promise
async def append_is_refused_when_too_few_messages_are_shared(archive: Archive) -> None:
    await archive.append("s", parsed(user("one"), assistant("two"), user("three")), format=FORMAT)
    other = parsed(user("one"), assistant("TWO"))
    too_short = await archive.append("s", other, format=FORMAT, least_shared=2)
    assert too_short.forks_at == 1
    assert await transcript(archive, "s") == [user("one"), assistant("two"), user("three")]
    accepted = await archive.append("s", other, format=FORMAT, least_shared=1)
    assert (accepted.forks_at, accepted.seqs) == (1, (0, 3))


@promise
async def append_marks_the_receipts_of_the_list(archive: Archive) -> None:
    first = await archive.append("s", parsed(user("one")), format=FORMAT)
    second = await archive.append("s", parsed(user("other")), format=FORMAT)
    assert first.receipts == second.receipts == ()
    await archive.commit("s", receipt={"of": "one"}, head=first.head)
    await archive.commit("s", receipt={"of": "other"}, head=second.head)
    continued = await archive.append("s", parsed(user("one"), assistant("two")), format=FORMAT)
    assert continued.receipts == (True, False)
    assert [r["of"] for r in await archive.receipts("s", heads=continued.heads)] == ["one"]


@promise
async def append_continues_the_branch_of_after(archive: Archive) -> None:
    first = await archive.append("s", parsed(user("one"), assistant("two")), format=FORMAT)
    continued = await archive.append("s", parsed(user("three")), format=FORMAT, after=first.head)
    assert (continued.seqs, continued.written) == ((2,), 1)
    again = await archive.append("s", parsed(user("three")), format=FORMAT, after=first.head)
    assert (again.seqs, again.written, again.head) == ((2,), 0, continued.head)
    raws = [user("one"), assistant("two"), user("three")]
    full_list = await archive.append("s", parsed(*raws), format=FORMAT)
    assert (full_list.seqs, full_list.written, full_list.head) == ((0, 1, 2), 0, continued.head)
    assert await archive.context("s") == (FORMAT, raws)
    assert (
        await archive.append("s", (), format=FORMAT, after=continued.head)
    ).head == continued.head
    with pytest.raises(NotFoundError, match="whole message list"):
        await archive.append("s", parsed(user("x")), format=FORMAT, after="0" * 32)
    with pytest.raises(NotFoundError):
        await archive.append("other", parsed(user("x")), format=FORMAT, after=continued.head)
    sessions, _ = await archive.sessions()
    assert [info.session_id for info in sessions] == ["s"]


@promise
async def message_range_includes_both_ends(archive: Archive) -> None:
    raws = [user(str(count)) for count in range(5)]
    await add(archive, "s", *raws)

    async def read(start: int, stop: int) -> list[Any]:
        return [message.raw for message in await archive.read_messages("s", start, stop)]

    assert await read(1, 3) == raws[1:4]
    assert await read(4, 99) == raws[4:]
    assert await read(5, 9) == []
    for start, stop in ((-1, 2), (3, 2)):
        with pytest.raises(QueryError, match="range"):
            await archive.read_messages("s", start, stop)


@promise
async def invalid_session_ids_are_refused(archive: Archive) -> None:
    for bad in ("", "a/b", "a b", "ü", "x" * 129, "a\n", "\x00"):
        with pytest.raises(SettingsError, match="Invalid session_id"):
            await archive.append(bad, parsed(user("x")), format=FORMAT)
        with pytest.raises(SettingsError, match="Invalid session_id"):
            await archive.read_messages(bad, 0, 1)
        with pytest.raises(SettingsError, match="Invalid session_id"):
            await archive.append("s", parsed(user("x")), format=FORMAT, parent_session_id=bad)
    for fine in ("..", ".", "CON", "x" * 128, "A", "a", "2026-01-01T00:00:00.jsonl"):
        await add(archive, fine, user(f"in {fine}"))
        assert await transcript(archive, fine) == [user(f"in {fine}")]


@promise
async def append_names_the_index_of_a_message_that_it_refuses(archive: Archive) -> None:
    with pytest.raises(SettingsError, match="Message 1 has no source"):
        await archive.append("s", (*parsed(user("x")), make_message("user", "ours")), format=FORMAT)
    with pytest.raises(SettingsError, match="Unknown format 'nonsense'"):
        await archive.append("s", parsed(user("x")), format="nonsense")
    (fine,) = parsed(user("x"))
    broken = replace(fine, source={"role": "user", "content": "x", "data": b"bytes"})
    with pytest.raises(InvalidMessageError, match="Message 1"):
        await archive.append("s", (fine, broken), format=FORMAT)
    with pytest.raises(NotFoundError):
        await archive.session_info("s")


@promise
async def unknown_sessions_and_outputs_raise_not_found(archive: Archive) -> None:
    for ask in (
        archive.context("gone"),
        archive.receipts("gone"),
        archive.session_info("gone"),
        archive.read_messages("gone", 0, 1),
    ):
        with pytest.raises(NotFoundError, match="no session 'gone'"):
            await ask
    for unknown in (
        archive.output_info("o_000000000000000000000000"),
        archive.read_output("../../etc/passwd"),
        archive.read_output_lines("o_000000000000000000000000"),
    ):
        with pytest.raises(NotFoundError, match="no output"):
            await unknown
    with pytest.raises(NotFoundError) as caught:
        await archive.read_output("o_" + "0" * 100_000)
    assert len(str(caught.value)) < 1_000


@promise
async def search_works_when_names_and_times_are_unusual(archive: Archive) -> None:
    odd = call("c\ud800", "Tool \ud800\x00", path="needle")
    times = (float("nan"), float("inf"), -5.0, 1e300)
    dated = [
        replace(message, timestamp_seconds=seconds)
        for message, seconds in zip(
            parsed(user("\ud800 needle"), odd, user("\x00 needle"), user("needle")), times,
            strict=True,
        )
    ]  # fmt: skip
    await archive.append("s", dated, format=FORMAT)
    assert sorted(await found(archive, "needle")) == pointers("s", 0, 1, 2, 3)
    assert await found(archive, "needle", tool="Tool \ud800\x00") == pointers("s", 1)
    (listed,), _ = await archive.sessions()
    assert listed == await archive.session_info("s")
    assert listed.title == "? needle"


# Contexts and receipts


@promise
async def compacted_list_continues_the_session(archive: Archive) -> None:
    await add(archive, "s", user("one"), assistant("two"), user("three"))
    summary, cleared = user("[summary]"), assistant("[cleared]")
    await archive.commit(
        "s",
        context=[
            ContextEntry(-1, summary),
            ContextEntry(-1, cleared, source_seq=1),
            ContextEntry(2, user("three")),
        ],
    )
    context = [summary, cleared, user("three")]
    assert await archive.context("s") == (FORMAT, context)
    grown = await archive.append("s", parsed(*context, assistant("four")), format=FORMAT)
    assert (grown.seqs, grown.written) == ((-1, 1, 2, 3), 1)
    again = await archive.append(
        "s", parsed(*context, assistant("four"), user("five")), format=FORMAT
    )
    assert (again.seqs, again.written) == ((-1, 1, 2, 3, 4), 1)
    all_messages = [*context, assistant("four"), user("five")]
    assert await archive.context("s") == (FORMAT, all_messages)
    for after, limit in ((0, 2), (1, 3), (2, None), (-2, None), (-3, 2), (-9, 1), (9, 9)):
        part = all_messages[after:][:limit]
        assert await archive.context("s", after=after, limit=limit) == (FORMAT, part)
    assert await transcript(archive, "s") == [
        user("one"), assistant("two"), user("three"), assistant("four"), user("five"),
    ]  # fmt: skip


@promise
async def second_compaction_replaces_the_first_context(archive: Archive) -> None:
    await add(archive, "s", user("one"))
    await archive.commit("s", context=[ContextEntry(-1, user("summary 1"))])
    await add(archive, "s", user("summary 1"), assistant("two"))
    await archive.commit(
        "s", context=[ContextEntry(-1, user("summary 2")), ContextEntry(1, assistant("two"))]
    )
    seqs = await add(archive, "s", user("summary 2"), assistant("two"), user("three"))
    assert seqs == (-1, 1, 2)
    assert await archive.context("s") == (
        FORMAT, [user("summary 2"), assistant("two"), user("three")],
    )  # fmt: skip


@promise
async def context_can_have_branches(archive: Archive) -> None:
    await add(archive, "s", user("one"))
    await archive.commit("s", context=[ContextEntry(-1, user("summary"))])
    await add(archive, "s", user("summary"), assistant("two"), user("three"))
    assert await add(archive, "s", user("summary"), assistant("two"), user("3")) == (-1, 1, 3)
    assert await archive.context("s") == (FORMAT, [user("summary"), assistant("two"), user("3")])


@promise
async def context_with_large_messages_is_read_unchanged(archive: Archive) -> None:
    large = user("x" * 100_000 + "\udcff")
    await add(archive, "s", user("one"))
    await archive.commit("s", context=[ContextEntry(-1, large)])
    assert await archive.context("s") == (FORMAT, [large])
    assert (await add(archive, "s", large, user("next"))) == (-1, 1)


@promise
async def commit_refuses_a_context_with_an_unknown_message(archive: Archive) -> None:
    await add(archive, "s", user("one"))
    with pytest.raises(NotFoundError, match="message 7"):
        await archive.commit("s", context=[ContextEntry(7, {})])


@promise
async def receipts_are_returned_oldest_first(archive: Archive) -> None:
    await add(archive, "s", user("one"))
    receipts = [{"n": 1}, {"n": 2, "text": "y" * 70_000}, {"n": 1}]
    for receipt in receipts:
        await archive.commit("s", receipt=receipt)
    assert await archive.receipts("s") == receipts
    for after, limit in ((0, 1), (1, 1), (1, None), (3, 2), (-1, None), (-2, 1), (-2, 9), (-9, 2)):
        expected = receipts[after:][:limit]
        assert await archive.receipts("s", after=after, limit=limit) == expected, (after, limit)


@promise
async def receipts_have_times_and_lists_before_and_after(archive: Archive) -> None:
    first = await archive.append("s", parsed(user("one"), assistant("two")), format=FORMAT)
    summary, cleared = user("[summary 1]"), assistant("[cleared]")
    first_context = (
        ContextEntry(-1, summary, replaced_head=first.head),
        ContextEntry(-1, cleared, 1),
    )
    await archive.commit("s", receipt={"n": 1}, context=first_context, head=first.head)
    await archive.commit("s", receipt={"n": 2})
    grown = await archive.append("s", parsed(summary, cleared, user("three")), format=FORMAT)
    second_context = (ContextEntry(-1, user("[summary 2]")), ContextEntry(2, user("three")))
    await archive.commit("s", receipt={"n": 3}, context=second_context, head=grown.head)

    stored = await archive.stored_receipts("s")
    assert [entry.receipt for entry in stored] == [{"n": 1}, {"n": 2}, {"n": 3}]
    times = [entry.timestamp_seconds for entry in stored]
    assert times == sorted(times)
    assert times[0] > 0
    lists = await archive.compacted_lists("s", 0)
    assert lists.before == (ContextEntry(0, {}), ContextEntry(1, {}))
    assert lists.after == first_context
    assert (await archive.compacted_lists("s", 1)).after is None
    lists = await archive.compacted_lists("s", 2)
    assert lists.before == (*first_context, ContextEntry(2, {}))
    assert lists.after == (second_context[0], ContextEntry(2, {}))
    assert await archive.compacted_lists("s", -1) == lists
    for number in (-4, 3):
        with pytest.raises(NotFoundError, match="3 receipts"):
            await archive.compacted_lists("s", number)


# Outputs

TEXTS = {
    "small": "one\ntwo\nthree",
    "empty": "",
    "one newline": "\n",
    "large": "".join(f"line {count} {'x' * (count % 90)}\n" for count in range(9_000)),
    "one long line": "0123456789" * 30_000,
    "long lines": ("a" * 70_000 + "\n") * 3 + "b" * 70_000,
    "odd": "half \ud800 pair\r\n\x00\u2028" + "漢字" * 20_000,
}


@promise
async def outputs_are_read_unchanged_in_full_and_in_parts(archive: Archive) -> None:
    blobs = {name: make_blob(text, tool_name="Bash", call_id="c1") for name, text in TEXTS.items()}
    await archive.commit("s", blobs=list(blobs.values()))
    for name, blob in blobs.items():
        data = blob.data
        full = await archive.read_output(blob.output_id)
        assert (full.data, full.start_byte, full.start_line) == (data, 0, 1)
        info = full.info
        assert info == await archive.output_info(blob.output_id)
        assert (info.size_bytes, info.size_chars) == (len(data), len(TEXTS[name]))
        assert (info.session_id, info.tool_name, info.call_id) == ("s", "Bash", "c1")
        for start in {0, 1, len(data) // 2, 65_535, 65_536, len(data)}:
            if start <= len(data):
                part = await archive.read_output(blob.output_id, start_byte=start, limit_bytes=5000)
                assert part.data == data[start : start + 5000]
                assert part.start_line == data[:start].count(b"\n") + 1
        with pytest.raises(QueryError, match="bytes"):
            await archive.read_output(blob.output_id, start_byte=len(data) + 1)


@promise
async def outputs_are_read_by_lines_from_both_ends(archive: Archive) -> None:
    blobs = {name: make_blob(text) for name, text in TEXTS.items()}
    await archive.commit("s", blobs=list(blobs.values()))
    for blob in blobs.values():
        lines = [line + b"\n" for line in blob.data.split(b"\n")]
        lines[-1] = lines[-1][:-1]
        lines = lines if lines[-1] else lines[:-1]
        assert (await archive.output_info(blob.output_id)).line_count == len(lines)
        for start in {1, 2, len(lines) // 2, len(lines)} - {0}:
            if start <= len(lines):
                await check_lines(archive, blob, lines, start, start - 1)
        for distance in {1, 2, len(lines)} - {0}:
            await check_lines(archive, blob, lines, -distance, max(len(lines) - distance, 0))
        for wrong in (0, len(lines) + 2):
            with pytest.raises(QueryError, match="lines"):
                await archive.read_output_lines(blob.output_id, start_line=wrong)


async def check_lines(
    archive: Archive, blob: Blob, lines: Sequence[bytes], start: int, first_index: int
) -> None:
    for count in (1, 3, None):
        piece = await archive.read_output_lines(blob.output_id, start_line=start, line_count=count)
        stop = len(lines) if count is None else first_index + count
        assert piece.data == b"".join(lines[first_index:stop])
        assert piece.start_line == first_index + 1
        assert piece.start_byte == sum(map(len, lines[:first_index]))


@promise
async def binary_output_is_read_unchanged(archive: Archive) -> None:
    for data in (b"\xff\xfe\x00", bytes(range(256)) * 400):
        blob = Blob(output_id_of(data), data, "application/octet-stream")
        await archive.commit("s", blobs=[blob])
        assert (await archive.read_output(blob.output_id)).data == data
        assert (await archive.output_info(blob.output_id)).media_type == "application/octet-stream"


@promise
async def commit_stores_an_output_once(archive: Archive) -> None:
    blobs = [make_blob("small", tool_name="A"), make_blob("L\n" * 40_000, tool_name="B")]
    await archive.commit("s", blobs=[*blobs, *blobs])
    before = await archive.health()
    await archive.commit("s", blobs=[make_blob("small", tool_name="C"), blobs[1]])
    after = await archive.health()
    assert (after.output_count, after.log_bytes) == (2, before.log_bytes)
    assert (await archive.output_info(blobs[0].output_id)).tool_name == "A"


@promise
async def commit_refuses_an_output_whose_id_does_not_match(archive: Archive) -> None:
    forged = replace(make_blob("harmless"), data=b"other")
    with pytest.raises(SettingsError, match="does not match the content"):
        await archive.commit("s", blobs=[forged])


# Search


@promise
async def search_finds_words_names_parts_paths_and_cjk(archive: Archive) -> None:
    await add(
        archive,
        "s",
        user("Please fix src/x/bar_baz17.py:17, it raises ZXPlant17QuirkError."),
        call("c1", "Bash", command="ls -la /var/lib/postgresql", timeout=3000),
        result("c1", "请压缩上下文。error E4032-9fa: connection refused\nÜBERGRÖSSE"),
        assistant("Das HTTPServer-Modul ist kaputt; ライブラリを更新"),
    )
    cases = {
        "quirk": 0, "ZXPlant17QuirkError": 0, "zxplant17quirkerror": 0, "bar": 0, "bar_baz": 0,
        "bar_baz17.py": 0, "src/x/bar_baz17.py:17": 0, "postgresql": 1, "bash": 1, "3000": 1,
        "压缩": 2, "上下文": 2, "E4032-9fa": 2, "9fa": 2, "übergrösse": 2, "refus*": 2,
        "server": 3, "HTTPServer": 3, "更新": 3, "ライブラリ": 3, "更": 3, "新": 3,
    }  # fmt: skip
    for words, seq in cases.items():
        assert await found(archive, words) == pointers("s", seq), words
    assert (await found(archive, "src/x/bar_baz17.py:18"))[0] == pointers("s", 0)[0]
    assert (await found(archive, "如何压缩代码的上下文呢"))[0] == pointers("s", 2)[0]
    for absent in ("quirky", "压上", "bazooka"):
        assert await found(archive, absent) == [], absent


@promise
async def search_finds_the_answer_to_a_question(archive: Archive) -> None:
    await add(
        archive,
        "s",
        user("What is the weather like?"),
        assistant("The deployment password rotates every 90 days, says the runbook."),
        user("And which plan is there for the day after that?"),
        assistant("How about a walk? It is what you like to do."),
    )
    page = await archive.search(Query("how often does the password of the deployment rotate?"))
    assert page.hits[0].seq == 1
    alone = await found(archive, "the")
    assert sorted(alone) == pointers("s", 0, 1, 2), "a query of one stop word searches for it"


@promise
async def search_accepts_any_text(archive: Archive) -> None:
    await add(archive, "s", user("plain words"))
    for text in (
        'plain AND', 'NOT plain', '"plain', "plain)", "plain*", "words:plain", "pl{ain", "plain ^",
        "NEAR(plain words)", "plain -- '; DROP TABLE doc", "plain\x00", "plain \ud800", "plain" * 9,
        "plain " * 500,
    ):  # fmt: skip
        for kind in ("words", "phrase"):
            await archive.search(Query(text, kind=kind))  # type: ignore[arg-type]
    for empty in ("", "  ", "?!", "\ud800"):
        with pytest.raises(QueryError, match="no letter or digit"):
            await archive.search(Query(empty))


@promise
async def phrase_matches_words_in_order(archive: Archive) -> None:
    await add(archive, "s", user("connection refused by peer"), user("refused: the connection"))
    assert await found(archive, "Connection, refused", kind="phrase") == pointers("s", 0)
    assert await found(archive, "refused connection", kind="phrase") == []


@promise
async def pattern_matches_the_original_text(archive: Archive) -> None:
    await add(archive, "s", user('line one\nE4032 "quoted"'), user("E403 nothing"))
    await archive.commit("s", blobs=[make_blob("a\n" * 20_000 + "E9999 deep down\n")])
    page = await archive.search(Query(r"\AE\d{4} .*$", kind="regex"))
    assert page.hits == ()
    page = await archive.search(Query(r"^E\d{4} .*$", kind="regex"))
    assert [(hit.kind, hit.line) for hit in page.hits] == [("output", 20_001), ("message", None)]
    assert page.hits[1].offset_chars == 9
    assert page.total_is_exact
    for wrong in ("(", "*", "", "x" * 2000, "x{99999999}", "(((x{999}){999}){999})", "x{,9999999}"):
        with pytest.raises(QueryError, match="pattern"):
            await archive.search(Query(wrong, kind="regex"))


@promise
async def slow_pattern_is_stopped(archive: Archive) -> None:
    await add(archive, "s", user("a" * 5000 + "!"))
    with pytest.raises(QueryError, match="takes longer"):
        await archive.search(Query(r"(a|aa)+$", kind="regex"))
    assert await found(archive, "a{3}!", kind="regex") == pointers("s", 0)


@promise
async def filters_restrict_a_search(archive: Archive) -> None:
    await add(
        archive, "a",
        user("needle"), call("c1", "Bash", command="needle"), result("c1", "needle: not found"),
    )  # fmt: skip
    await add(archive, "b", {"role": "system", "content": "needle"}, user("needle"))
    cases: list[tuple[Json, list[str]]] = [
        ({"session_id": "a"}, pointers("a", 0, 1, 2)),
        ({"role": "user"}, pointers("a", 0) + pointers("b", 1)),
        ({"role": "tool"}, pointers("a", 2)),
        ({"role": "system"}, pointers("b", 0)),
        ({"tool": "Bash"}, pointers("a", 1, 2)),
        ({"tool": "Read"}, []),
        ({"role": "assistant", "session_id": "a", "tool": "Bash"}, pointers("a", 1)),
    ]
    for settings, expected in cases:
        for order in ("relevance", "recent"):
            assert sorted(await found(archive, "needle", order=order, **settings)) == expected
        assert sorted(await found(archive, "needle", kind="regex", **settings)) == expected
    with pytest.raises(QueryError, match="role"):
        await found(archive, "needle", role="nobody")
    for kind in ("words", "phrase", "regex"):
        with pytest.raises(NotFoundError, match="no session 'nobody'"):
            await archive.search(Query("needle", kind=kind, session_id="nobody"))


@promise
async def search_includes_descendants_of_the_session(archive: Archive) -> None:
    parents = {"top": None, "child": "top", "grandchild": "child", "other": None}
    for session, parent in parents.items():
        await archive.append(
            session, parsed(user(f"needle in {session}")), format=FORMAT, parent_session_id=parent
        )
    for kind in ("words", "regex"):
        family = await found(archive, "needle", session_id="top", kind=kind)
        names = ("child", "grandchild", "top")
        assert sorted(family) == [pointer for name in names for pointer in pointers(name, 0)]
    assert await found(archive, "needle", session_id="grandchild") == pointers("grandchild", 0)


@promise
async def sessions_lists_the_family_of_a_session(archive: Archive) -> None:
    parents = {"top": None, "child": "top", "other": None, "twin": "top", "grandchild": "child"}
    for session, parent in parents.items():
        await archive.append(
            session, parsed(user(session)), format=FORMAT, parent_session_id=parent
        )

    async def family(session: str) -> set[str]:
        first, cursor = await archive.sessions(limit=2, family_of=session)
        rest, _ = await archive.sessions(limit=9, cursor=cursor, family_of=session)
        found = first if cursor is None else first + rest
        assert all(info.parent_session_id == parents[info.session_id] for info in found)
        return {info.session_id for info in found}

    assert await family("top") == {"top", "child", "twin", "grandchild"}
    assert await family("child") == {"child", "grandchild"}
    assert await family("nobody") == set()


@promise
async def search_finds_words_in_any_script_and_unicode_form(archive: Archive) -> None:
    words = ["Müller", "データベース", "main", "接続", "Ärger", "ガイド", "ab\u00adcd", "x1", "終"]
    forms = ("NFC", "NFD", "NFKC")
    texts = [normalize(form, " ".join(words)) for form in forms]
    wide = "".join(chr(ord(letter) + 0xFEE0) for letter in "code42")
    await add(archive, "s", *map(user, texts), user(f"half ﾃﾞｰﾀ {wide} wide ﬁle"))
    every = sorted(pointers("s", 0, 1, 2))
    for start, stop in combinations(range(len(words) + 1), 2):
        for form in forms:
            query = normalize(form, " ".join(words[start:stop]))
            assert sorted(await found(archive, query, kind="phrase")) == every, query
    for word in [*map(partial(normalize, "NFD"), words), "abcd", "müller"]:
        assert {*every} <= {*await found(archive, word)}, word
    for query in ("データ", "code42 wide", "half ﾃﾞｰﾀ", "file", wide):
        assert pointers("s", 3)[0] in await found(archive, query, kind="phrase"), query
    # A pattern matches the original text.
    for number, text in enumerate(texts):
        name = text.split(" ")[0]
        assert pointers("s", number)[0] in await found(archive, rf"{name}\b.*main", kind="regex")
    assert await found(archive, r"ab\u00adcd x1", kind="regex") != []
    (hit,) = (await archive.search(Query(wide))).hits
    assert wide in hit.snippet


@promise
async def search_finds_latin_letters_with_and_without_accents(archive: Archive) -> None:
    written = "Ein Résumé über die Größe von naïveParser: Việt, Ærø, Łódź"
    await add(archive, "s", user(written), user("The tea"), user("мой кой мои"))
    first, second, third = pointers("s", 0, 1, 2)
    for query in (
        "resume", "RÉSUMÉ", "résumés", "uber", "Grosse", "große", "naïve", "naive_parser",
        "viet", "resume uber die", "łodz", "ærø",
    ):  # fmt: skip
        is_found = query != "Grosse"  # ß is a separate letter
        assert await found(archive, query) == [first] * is_found, query
    assert await found(archive, "resume uber die", kind="phrase") == [first]
    assert await found(archive, "thé") == [second], "not a stop word"
    assert await found(archive, "мои") == [third]
    assert await found(archive, "мо") == []
    assert await found(archive, "й", kind="regex") == [third]
    assert await found(archive, "Résumé.*Größe", kind="regex") == [first]
    assert await found(archive, "Resume", kind="regex") == [], "a pattern matches the original text"
    (hit,) = (await archive.search(Query("große łodz"))).hits
    assert "Łódź" in hit.snippet


@promise
async def path_filter_accepts_any_script(archive: Archive) -> None:
    path = normalize("NFD", "/Users/müller/プロジェクト/メイン/main.py")
    await add(archive, "s", call("c1", "Read", file_path=path), result("c1", "needle"))
    for path_form in (path, normalize("NFC", path), "プロジェクト/メイン/main.py", "メイン"):
        assert await found(archive, "needle", path=path_form) == pointers("s", 1), path_form


@promise
async def path_filter_finds_messages_and_results_about_the_path(archive: Archive) -> None:
    await add(
        archive, "s",
        user("needle elsewhere"),
        call("c1", "Read", file_path="/repo/src/app/main_loop.py"),
        result("c1", "1 needle = None"),
        call("c2", "Read", file_path="/repo/src/app/other.py"),
        result("c2", "1 needle = None"),
        assistant("The needle of src/app/main_loop.py is None."),
    )  # fmt: skip
    for path in ("src/app/main_loop.py", "main_loop.py"):
        for kind in ("words", "regex"):
            there = await found(archive, "needle", path=path, kind=kind)
            assert sorted(there) == pointers("s", 2, 5)
    assert await found(archive, "needle", path="/repo/src/app/main_loop.py") == pointers("s", 2)
    assert sorted(await found(archive, "needle", path="src/app")) == pointers("s", 2, 4, 5)
    assert await found(archive, "needle", path="app/src") == []
    with pytest.raises(QueryError, match="path"):
        await found(archive, "needle", path="//")


@promise
async def search_finds_and_shows_other_forms_of_a_word(archive: Archive) -> None:
    text = "intro " * 200 + "the keys are rotated by hand"
    await add(archive, "s", user(text), user("a connection is happily kept"))
    (hit,) = (await archive.search(Query("who rotates a key?"))).hits
    assert text[hit.offset_chars :].startswith(("keys", "rotated"))
    assert "keys are rotated" in hit.snippet
    for prefix in ("connecti*", "conn*", "happ*", "happi*", "rotat*"):
        assert len(await found(archive, prefix)) == 1, prefix
    for absent in ("connectivi*", "rotatin*", "happe*"):
        assert await found(archive, absent) == [], absent


@promise
async def search_finds_a_name_by_its_words(archive: Archive) -> None:
    names = ("turboEncabulator", "turbo_encabulator", "TURBO-ENCABULATOR", "TurboEncabulator2")
    noise = [user(f"turbo number {count}") for count in range(20)]
    noise += [user(f"encabulator number {count}") for count in range(20)]
    for count, name in enumerate(names):
        await add(archive, f"s{count}", *noise, user("word " * 3000 + name))
    hits = await found(archive, "turbo encabulator", limit=4)
    assert sorted(hits) == sorted(pointers(f"s{count}", 40)[0] for count in range(4))


@promise
async def search_for_an_absent_word_has_an_exact_total_of_zero(archive: Archive) -> None:
    await add(archive, "s", user("version 7 of the plan"), user("plough 7 fields"))
    for absent in ("quuxplugh", "quuxplugh7", "src/quuxplugh/plan9.py"):
        page = await archive.search(Query(absent))
        assert (page.hits, page.total, page.total_is_exact) == ((), 0, True), absent


@promise
async def search_finds_readable_thinking_only(archive: Archive) -> None:
    thought = {"type": "thinking", "thinking": "The decoder refuses it.", "signature": "c2lnbmVk"}
    hidden = {"type": "redacted_thinking", "data": "c2VjcmV0bHk"}
    asks = call("t1", "search_transcript", query="leak")
    asks["content"].insert(0, {**thought, "thinking": "I search for the porphyry leak."})
    own = [asks, result("t1", "Nothing was found.")]
    speaks = {"role": "assistant", "content": [thought, hidden, {"type": "text", "text": "Done."}]}
    await add(archive, "s", user("Fix the plinth."), speaks, *own, user("The porphyry is dry."))
    assert await found(archive, "decoder refuses") == pointers("s", 1)
    for unread in ("c2lnbmVk", "c2VjcmV0bHk"):
        assert await found(archive, unread) == []
    # Thinking about a call of this server is not found, and neither is the call.
    assert await found(archive, "porphyry") == pointers("s", 4)


@promise
async def search_ranks_words_that_are_close_together_first(archive: Archive) -> None:
    far = "The parser runs first." + " Nothing happens here." * 40 + " Then the cache is cleared."
    await add(archive, "a", user(far))
    await add(archive, "b", user("Clear the parser cache, " + "please and thank you. " * 40))
    await add(archive, "c", user(far))
    assert (await found(archive, "parser cache"))[0] == pointers("b", 0)[0]


@promise
async def search_ranks_the_answer_after_a_question_first(archive: Archive) -> None:
    await add(archive, "a", *(user(f"the oven of neighbour {n} is warm") for n in range(5)))
    await add(archive, "b", user("Which sourdough is it?"), assistant("One of rye, warm."))
    page = await archive.search(Query("warm sourdough", limit=2))
    assert [(hit.session_id, hit.seq) for hit in page.hits] == [("b", 0), ("b", 1)]


@promise
async def search_filters_and_sorts_by_time(archive: Archive) -> None:
    messages = [
        replace(message, timestamp_seconds=float(second))
        for message, second in zip(
            parsed(user("needle a"), user("needle b"), user("needle c")), (300, 100, 200),
            strict=True,
        )
    ]  # fmt: skip
    await archive.append("s", messages, format=FORMAT)
    assert [m.timestamp_seconds for m in await archive.read_messages("s", 0, 9)] == [300, 100, 200]
    assert await found(archive, "needle", order="recent") == pointers("s", 0, 2, 1)
    assert await found(archive, "needle", kind="regex") == pointers("s", 0, 2, 1)
    assert await found(archive, "needle", since_seconds=200.0) == pointers("s", 0, 2)
    assert await found(archive, "needle", until_seconds=200.0) == pointers("s", 2, 1)
    between = await found(archive, "needle", since_seconds=150.0, until_seconds=250.0)
    assert between == pointers("s", 2)


@promise
async def search_pages_have_each_hit_once(archive: Archive) -> None:
    for needle, settings in (
        ("apple", {"kind": "words"}),
        ("pear", {"order": "recent"}),
        ("plum", {"kind": "regex"}),
    ):
        await add(archive, needle, *(user(f"{needle} {count}") for count in range(25)))
        seen: list[int] = []
        cursor: str | None = None
        while True:
            page = await archive.search(Query(needle, limit=10, cursor=cursor, **settings))  # type: ignore[arg-type]
            seen += [hit.seq for hit in page.hits]
            cursor = page.next_cursor
            # A message that is appended meanwhile does not move a hit to the next page.
            await add(archive, f"other-{needle}-{len(seen)}", user(f"{needle} again"))
            if cursor is None:
                break
        assert sorted(seen, reverse=True) == list(range(24, -1, -1))
        assert seen == sorted(seen, reverse=True) or "order" not in settings
    for cursor in ("nonsense", "W10=", "W10", "WyJhIiwxXQ=="):
        with pytest.raises(QueryError, match="cursor"):
            await archive.search(Query("needle", cursor=cursor))
    for limit in (0, -1, 10_000):
        with pytest.raises(QueryError, match="limit"):
            await archive.search(Query("needle", limit=limit))


@promise
async def recent_search_ranks_by_word_count_when_no_message_has_all_words(archive: Archive) -> None:
    texts = ("red fox at dawn", "red fox at dusk", "red paint", "a fox", "nothing")
    await add(archive, "s", *map(user, texts))
    assert await found(archive, "red fox unicorn", order="recent") == pointers("s", 1, 0, 3, 2)
    assert await found(archive, "red fox", order="recent") == pointers("s", 1, 0)


@promise
async def search_shows_at_most_three_parts_of_an_output(archive: Archive) -> None:
    await add(archive, "s", user("a needle, once"))
    log = make_blob("needle in a long log\n" * 20_000, tool_name="Bash")
    await archive.commit("s", blobs=[log])
    for settings in ({}, {"order": "recent"}, {"kind": "regex", "limit": 100}):
        page = await archive.search(Query("needle", **settings))  # type: ignore[arg-type]
        where = [hit.pointer for hit in page.hits]
        assert where.count(log.output_id) == 3
        assert pointers("s", 0)[0] in where


@promise
async def hit_has_the_exact_position_of_the_match(archive: Archive) -> None:
    text = "intro\n" * 500 + "the TurboEncabulator failed\n" + "outro\n" * 5000
    await add(archive, "s", user(text))
    blob = make_blob("ü\n" * 30_000 + text, tool_name="Bash")
    await archive.commit("s", blobs=[blob])
    hits = (await archive.search(Query("turbo encabulator"))).hits
    by_kind: dict[str, Hit] = {hit.kind: hit for hit in hits}
    message, output = by_kind["message"], by_kind["output"]
    assert text[message.offset_chars :].startswith("TurboEncabulator")
    assert message.snippet in text
    assert "the TurboEncabulator failed" in message.snippet
    assert (message.seq, message.role, message.line) == (0, "user", None)
    content = blob.data.decode()
    assert content[output.offset_chars :].startswith("TurboEncabulator")
    assert output.snippet in content
    assert (output.pointer, output.line, output.tool_name) == (blob.output_id, 30_501, "Bash")
    assert output.line is not None
    line = await archive.read_output_lines(blob.output_id, start_line=output.line, line_count=1)
    assert line.data == b"the TurboEncabulator failed\n"


# Sessions


@promise
async def sessions_report_saved_tokens_and_host(archive: Archive) -> None:
    first = await archive.append("s", parsed(user("one")), format=FORMAT)
    host = make_blob("claude-code /home/a b", tool_name=HOST_TOOL)
    await archive.commit("s", blobs=[host])
    for after in (30, 20):
        receipt = {"status": "compacted", "tokens": {"before": 100, "after": after}}
        await archive.commit("s", receipt=receipt, head=first.head)
    [info], _ = await archive.sessions()
    assert (info.saved_tokens, info.host, info.folder) == (150, "claude-code", "/home/a b")
    assert (await archive.session_info("s")).saved_tokens == 150


@promise
async def sessions_are_listed_newest_first_in_pages(archive: Archive) -> None:
    for count in range(7):
        (message,) = parsed(user(f"title of {count}\nmore"))
        dated = replace(message, timestamp_seconds=1000.0 + count)
        await archive.append(f"s{count}", [dated], format=FORMAT)
    first, cursor = await archive.sessions(limit=5)
    assert cursor is not None
    rest, end = await archive.sessions(limit=5, cursor=cursor)
    assert end is None
    listed = first + rest
    assert sorted(info.session_id for info in listed) == [f"s{count}" for count in range(7)]
    assert [info.last_seconds for info in listed] == sorted(
        (info.last_seconds for info in listed), reverse=True
    )
    for info in listed:
        assert info.text_chars > 5
        assert replace(info, text_chars=0) == await archive.session_info(info.session_id)
    with pytest.raises(QueryError, match="limit"):
        await archive.sessions(limit=0)
    with pytest.raises(QueryError, match="cursor"):
        await archive.sessions(cursor="?")


@promise
async def search_finds_every_word_of_a_long_message(archive: Archive) -> None:
    text = " ".join(f"word{number}" for number in range(80_000)) + " " + "x" * 310_000 + " last"
    await add(archive, "s", user("before"), user(text), user("after"))
    for word in ("word0", "word33333", "word79999", "last"):
        [hit] = (await archive.search(Query(word))).hits
        assert (hit.pointer, hit.offset_chars) == (*pointers("s", 1), text.find(word))
    assert await found(archive, "word7999[9]", kind="regex") == pointers("s", 1)
    await archive.delete(["s"])
    assert await found(archive, "last") == []


@promise
async def session_info_has_parent_and_title(archive: Archive) -> None:
    await archive.append(
        "child",
        parsed({"role": "system", "content": "rules"}, user("  fix\tthe bug \nnow")),
        format=FORMAT,
        parent_session_id="parent",
    )
    await add(archive, "late", user("x"))
    await archive.append(
        "late", parsed(user("x"), assistant("y")), format=FORMAT, parent_session_id="parent"
    )
    for session_id, title in (("child", "fix the bug"), ("late", "x")):
        info = await archive.session_info(session_id)
        assert (info.parent_session_id, info.title) == ("parent", title)
        assert (info.format, info.message_count) == (FORMAT, 2)
    for title in ("first title", "second title"):  # given by the user, in the host
        data = title.encode()
        blob = Blob(output_id_of(data), data, "text/plain", TITLE_TOOL)
        await archive.commit("late", blobs=[blob])
        listed = {info.session_id: info.title for info in (await archive.sessions(limit=9))[0]}
        assert listed == {"child": "fix the bug", "late": title}
        assert (await archive.session_info("late")).title == title


@promise
async def health_reports_sizes_and_no_problems(archive: Archive) -> None:
    empty = await archive.health()
    assert (empty.session_count, empty.message_count, empty.output_count) == (0, 0, 0)
    await add(archive, "s", user("one"), user("two"))
    await archive.commit("t", blobs=[make_blob("x\n" * 50_000)])
    health = await archive.health()
    assert (health.session_count, health.message_count, health.output_count) == (2, 2, 1)
    assert health.log_bytes > 0
    assert health.blob_bytes > 0
    assert all(problem.startswith("Note:") for problem in health.problems)


# Retention


@promise
async def outputs_are_listed_newest_first(archive: Archive) -> None:
    blobs = [make_blob(f"output {count}", tool_name="Bash") for count in range(3)]
    await archive.commit("s", blobs=blobs[:2])
    await archive.commit("s", blobs=blobs)
    await archive.commit("other", blobs=[make_blob("elsewhere")])
    listed = await archive.outputs("s")
    assert [info.output_id for info in listed] == [blob.output_id for blob in reversed(blobs)]
    assert await archive.outputs("s", limit=2) == listed[:2]
    assert listed[0] == await archive.output_info(blobs[2].output_id)
    with pytest.raises(NotFoundError, match="no session 'gone'"):
        await archive.outputs("gone")


@promise
async def delete_removes_a_session_completely(archive: Archive) -> None:
    large = "needle " * 12_000
    await add(archive, "doomed", user("needle in doomed"), user(large))
    await add(archive, "kept", user("needle in kept"))
    assert await found(archive, "needle", session_id="doomed")
    assert await archive.delete(["doomed"]) > 0
    for ask in (archive.context("doomed"), archive.session_info("doomed")):
        with pytest.raises(NotFoundError):
            await ask
    assert await found(archive, "needle") == pointers("kept", 0)
    assert [info.session_id for info in (await archive.sessions())[0]] == ["kept"]
    assert await transcript(archive, "kept") == [user("needle in kept")]
    assert await add(archive, "doomed", user("a new life")) == (0,)
    assert await transcript(archive, "doomed") == [user("a new life")]
    with pytest.raises(NotFoundError):
        await archive.delete(["kept", "gone"])
    assert await transcript(archive, "kept") == [user("needle in kept")]


@promise
async def delete_removes_a_shared_output_with_its_last_session(archive: Archive) -> None:
    shared, own = make_blob("shared line\n" * 9_000), make_blob("own line\n" * 9_000)
    await archive.commit("a", blobs=[shared, own])
    await archive.commit("b", blobs=[shared])
    before = await archive.usage()
    usage_before = {session.session_id: session for session in before.sessions}
    assert usage_before["a"].own_bytes > 0
    assert usage_before["b"].own_bytes == 0
    assert usage_before["a"].shared_bytes == usage_before["b"].shared_bytes > 0
    await archive.delete(["a"])
    assert (await archive.read_output(shared.output_id)).data == shared.data
    with pytest.raises(NotFoundError):
        await archive.output_info(own.output_id)
    usage = await archive.usage()
    (remaining,) = usage.sessions
    assert (remaining.own_bytes, remaining.shared_bytes) == (usage_before["b"].shared_bytes, 0)
    assert usage.total_bytes == remaining.log_bytes + remaining.own_bytes < before.total_bytes
    assert await archive.delete(["b"]) == usage.total_bytes
    assert (await archive.usage()).total_bytes == 0
    await archive.commit("c", blobs=[shared])
    assert (await archive.read_output(shared.output_id)).data == shared.data


@promise
async def usage_lists_sessions_least_recently_used_first(archive: Archive) -> None:
    for count, name in enumerate(("old", "new")):
        dated = [
            replace(message, timestamp_seconds=1_000.0 * (count + 1))
            for message in parsed(user("x" * 500), user("y" * 70_000 + name))
        ]
        await archive.append(name, dated, format=FORMAT, parent_session_id="root")
    usage = await archive.usage()
    assert [session.session_id for session in usage.sessions] == ["old", "new"]
    for session in usage.sessions:
        assert session.message_count == 2
        assert session.log_bytes > 500
        assert session.parent_session_id == "root"
        assert session.own_bytes > 0
        assert session.shared_bytes == 0
    assert usage.total_bytes == sum(
        session.log_bytes + session.own_bytes for session in usage.sessions
    )
    assert usage.unnamed_bytes == 0


@promise
async def retain_protects_a_session_and_its_descendants_from_pruning(archive: Archive) -> None:
    for name, parent in (("one", None), ("sub", "one"), ("two", None)):
        await archive.append(name, parsed(user(name)), format=FORMAT, parent_session_id=parent)
    info = await archive.session_info("one")
    await archive.retain("one")
    assert await archive.session_info("one") == info, "protecting a session does not make it newer"

    async def chosen(rules: PruneRules) -> list[str]:
        plan = await archive.prune(rules, dry_run=True)
        return [session.session_id for session in plan.sessions]

    assert await chosen(PruneRules(max_bytes=0)) == ["two"]
    await archive.retain("one", retained=False)
    assert await chosen(PruneRules(before_seconds=1e12)) == ["one", "sub", "two"]
    assert await chosen(PruneRules(before_seconds=0.0, max_bytes=10**9)) == []
    with pytest.raises(NotFoundError):
        await archive.retain("gone")


@promise
async def prune_removes_the_sessions_of_its_plan(archive: Archive) -> None:
    for name in ("old", "middle", "new"):
        await add(archive, name, user(f"{name} " * 20_000))
    before = await archive.usage()
    rules = PruneRules(max_bytes=before.total_bytes // 2)
    plan = await archive.prune(rules, dry_run=True)
    assert [session.session_id for session in plan.sessions] == ["old", "middle"]
    assert plan.session_count == 3
    assert (await archive.usage()) == before, "a plan removes nothing"
    assert await archive.prune(rules) == plan
    after = await archive.usage()
    assert [session.session_id for session in after.sessions] == ["new"]
    assert after.total_bytes == plan.remaining_bytes == before.total_bytes - plan.freed_bytes
    assert (await archive.prune(rules)).sessions == ()


# Copies


@promise
async def copied_records_make_the_same_session(archive: Archive) -> None:
    raws = [user("one"), assistant("two"), user("x" * 100_000 + "\ud800")]
    appended = await archive.append("s", parsed(*raws), format=FORMAT, parent_session_id="top")
    blobs = [make_blob("small"), make_blob("large\n" * 40_000)]
    context = [ContextEntry(-1, user("summary"), replaced_head=appended.heads[1][:12])]
    context.append(ContextEntry(2, raws[2]))
    await archive.commit("s", blobs=blobs, receipt={"n": 1}, context=context, head=appended.head)
    await archive.append("s", parsed(user("summary"), raws[2], user("four")), format=FORMAT)
    await archive.append("s", parsed(raws[0], assistant("TWO")), format=FORMAT)
    await archive.retain("s")
    other = await archive.for_tenant("other")
    first = await archive.records("s", after=0, limit=3)
    assert await other.add_records("s", first, after=0, parent_session_id="top") == 3
    assert await other.add_records("s", first, after=0) == 0, "the same records are known"
    rest = await archive.records("s", after=3, limit=1_000)
    with pytest.raises(SettingsError, match="has 3 records"):
        await other.add_records("s", rest, after=4)
    await other.add_records("s", rest, after=3)
    assert await archive.records("s", after=3 + len(rest), limit=9) == []
    assert await other.records("nobody", after=0, limit=9) == []

    async def contents_of(by: Archive) -> list[Any]:
        return [
            await by.read_messages("s", 0, 99),
            await by.context("s"),
            await by.receipts("s"),
            await by.compacted_lists("s", 0),
            await by.branches("s"),
            await by.session_info("s"),
            await by.outputs("s"),
            await by.read_output(blobs[1].output_id),
            await by.search(Query("four")),
            await by.records("s", after=0, limit=99),
        ]

    assert await contents_of(other) == await contents_of(archive)
    assert [session.is_retained for session in (await other.usage()).sessions] == [True]


# Tenants


@promise
async def tenant_cannot_reach_another_tenant(archive: Archive) -> None:
    appended = await archive.append("s", parsed(user("needle of one")), format=FORMAT)
    blob = make_blob("large needle of one\n" * 9_000)
    await archive.commit("s", blobs=[blob], receipt={"of": "one"}, head=appended.head)
    other = await archive.for_tenant("other")
    assert (archive.tenant, other.tenant) == (DEFAULT_TENANT, "other")
    assert await other.for_tenant("other") is other
    for ask in (
        other.context("s"),
        other.receipts("s"),
        other.session_info("s"),
        other.read_messages("s", 0, 9),
        other.append("s", parsed(user("x")), format=FORMAT, after=appended.head),
        other.outputs("s"),
        other.output_info(blob.output_id),
        other.read_output(blob.output_id),
        other.retain("s"),
        other.delete(["s"]),
    ):
        with pytest.raises(NotFoundError):
            await ask
    assert await found(other, "needle") == []
    assert await found(other, "needle", kind="regex") == []
    assert await other.sessions() == ([], None)
    health = await other.health()
    assert (health.session_count, health.message_count, health.output_count) == (0, 0, 0)

    assert await add(other, "s", user("needle of other")) == (0,)
    await other.commit("s", blobs=[blob])
    assert await found(other, "needle", role="user") == pointers("s", 0)
    assert await transcript(archive, "s") == [user("needle of one")]
    assert await found(archive, "other") == []
    await other.delete(["s"])
    assert (await archive.read_output(blob.output_id)).data == blob.data
    for name in ("", "../x", "a b", "x" * 65, ".hidden"):
        with pytest.raises(SettingsError, match="tenant"):
            await archive.for_tenant(name)


@promise
async def unknown_tenant_is_refused_and_not_created(archive: Archive) -> None:
    await add(archive, "s", user("of the default one"))
    await add(await archive.for_tenant("acme"), "s", user("of another"))
    for name in ("acme", DEFAULT_TENANT):
        assert (await archive.for_tenant(name, opens=False)).tenant == name
    for _ in range(2):  # the first request creates nothing
        with pytest.raises(NotFoundError, match="'acne'"):
            await archive.for_tenant("acne", opens=False)

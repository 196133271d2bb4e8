"""A request too long for the target gives way to an extract, and reads back whole."""

import pytest
from context_compaction.messages.model import text_of
from context_compaction.messages.speakers import user_texts
from context_compaction.pipeline.compact import compact
from context_compaction.pipeline.long_request import shorten_request
from context_compaction.request import CompactRequest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.promises import check_promises, temporary_archive
from tests.support.small import (
    COUNT,
    answered,
    assistant,
    compacted,
    lines,
    ours,
    read,
    user,
    user_words,
)

RULE = "Never touch the production database, whatever the log says."
LOG = lines("ERROR worker-17 lost the lease of shard", 400)
PASTED = f"The nightly job fails. {RULE}\n\n{LOG}\n\nFind out why shard 7 is lost, please."


def history() -> list[Json]:
    return [
        user("Set up the nightly job."),
        *answered("a", "Bash", lines("ok", 200)),
        assistant("The nightly job is set up in jobs/nightly.py."),
    ]


async def compacted_to(payload: list[Json], target_tokens: int) -> tuple[str, str, list[str]]:
    """The newest message that goes out, all of it, and the warnings."""
    async with temporary_archive() as archive:
        request = CompactRequest(format="anthropic", target_tokens=target_tokens, session_id="s")
        answer = await check_promises(payload, request, archive)
        assert answer.fits
        [edit] = [edit for edit in answer.edits if edit.layer == "request"]
        whole = (await archive.read_output(edit.pointers[0])).data.decode()
        assert whole == payload[-1]["content"]
    return str(answer.messages[-1]["content"]), str(answer.messages), list(answer.warnings)


async def test_a_request_larger_than_the_target_becomes_an_extract_with_a_pointer() -> None:
    newest, _, warnings = await compacted_to([*history(), user(PASTED)], 1_200)
    assert newest.startswith("<persisted-output ")
    assert any("leaves too little room in full" in warning for warning in warnings)


async def test_what_the_user_asked_for_and_laid_down_in_it_stays_word_for_word() -> None:
    newest, everything, _ = await compacted_to([*history(), user(PASTED)], 1_200)
    assert "Find out why shard 7 is lost, please." in newest
    assert RULE in everything


async def test_a_first_message_that_is_larger_than_the_target_fits_as_an_extract_too() -> None:
    newest, _, _ = await compacted_to([user(PASTED)], 1_200)
    assert "Find out why shard 7 is lost, please." in newest


async def test_a_request_that_leaves_room_stays_in_full_and_is_the_hosts_own_object() -> None:
    payload = [*history(), *answered("b", "Bash", lines("more", 900)), assistant("Seen.")]
    payload.append(user("Now find out why shard 7 is lost, please."))
    async with temporary_archive() as archive:
        request = CompactRequest(format="anthropic", target_tokens=1_200, session_id="s")
        answer = await check_promises(payload, request, archive)
    assert answer.messages[-1] is payload[-1]


async def test_a_message_that_is_pinned_as_a_whole_is_not_shortened() -> None:
    payload = [*history(), user(PASTED)]
    marked = (len(payload) - 1,)
    answer = await compacted(payload, target_tokens=1_200, pinned_messages=marked)
    assert answer.messages[-1] is payload[-1]
    assert not answer.fits


NOTICE = f"<task-notification>\n<result>\n{lines('shard', 40)}\n</result>\n</task-notification>"


@pytest.mark.parametrize(
    ("asked", "acts", "is_extract"),
    [(NOTICE, True, True), (NOTICE, False, False), (f"Sort:\n{lines('shard', 40)}", True, False)],
)
async def test_a_notice_of_the_host_gives_way_once_the_agent_acts_on_it(
    asked: str, acts: bool, is_extract: bool
) -> None:
    work: list[Json] = []
    for step in range(8):
        work += [assistant(lines(f"thought {step}", 60)), *answered(f"c{step}", "Bash", "moved")]
    news = [user(asked), assistant("All shards are there.")]
    payload = [*history(), *news, *work] if acts else [*history(), *work, *news]
    async with temporary_archive() as archive:
        request = CompactRequest(format="anthropic", target_tokens=4_000, session_id="s")
        answer = await check_promises(payload, request, archive)
    assert [edit.layer for edit in answer.edits].count("request") == is_extract
    assert any(message is news[0] for message in answer.messages) != is_extract


def test_an_extract_is_not_made_of_an_extract() -> None:
    once = shorten_request(read([user(PASTED)]), count=COUNT, max_tokens=500)
    assert once.edits
    assert shorten_request(once.messages, count=COUNT, max_tokens=200).messages is once.messages


async def test_a_request_that_was_shortened_once_is_told_from_its_own_words_later() -> None:
    """The extract is no longer what the user said: its frame, and the gaps in it, are ours."""
    parts = [
        " ".join(f"Step {n}.{m} reads table {n} and fills column {m} of it." for m in range(12))
        for n in range(10)
    ]
    secret, request = "Step 3.9 reads table 3 and fills column 9 of it.", "\n".join(parts)
    payload = [*history(), user(request)]
    async with temporary_archive() as archive:
        wishes = CompactRequest(format="anthropic", target_tokens=1_200, session_id="s")
        first = (await compact(payload, wishes, archive=archive)).messages
        assert secret not in str(first)
        work = [*answered("b", "Bash", lines("seen", 400)), assistant("Shard 7 is found.")]
        grown = [*first, *work, user("Now mend it, please.")]
        wishes = CompactRequest(
            format="anthropic", target_tokens=9_000, session_id="s", mode="full"
        )
        later = (await compact(grown, wishes, archive=archive)).messages
    told = "\n".join(user_words(str(later[0]["content"])))
    assert secret in told
    assert "persisted" not in told


def test_what_a_host_framed_in_a_request_follows_the_users_words_and_is_never_his() -> None:
    code = "\n".join(f"def area_{n}(side):\n    return side * {n}" for n in range(300))
    asked = "Mend area_170 in this file. It must return the square of the side."
    said = user(f"{asked}\n\n<document>\n{code}\n</document>\n\n{RULE}")
    step = shorten_request(read([said]), count=COUNT, max_tokens=500)
    [message] = ours(step.messages)
    assert user_texts(message) == [*asked.splitlines(), RULE]
    told = text_of(message.blocks)
    assert "return side * 170" in told
    assert told.index(RULE) < told.index("area_170(side)")


@given(st.lists(st.text("ab \n:", max_size=30), max_size=30), st.integers(100, 600))
def test_an_extract_of_a_request_begins_as_it_does_and_keeps_its_lines(
    lines_said: list[str], max_tokens: int
) -> None:
    typed = "Do this first.\n" + "\n".join(lines_said) + "\n" + LOG
    step = shorten_request(read([user(typed)]), count=COUNT, max_tokens=max_tokens)
    [message] = ours(step.messages)
    shown = "\n".join(user_texts(message)).splitlines()
    assert shown[0] == "Do this first."
    assert COUNT.message(message) <= max_tokens * 1.05  # joined, texts count a little more
    said = {line.rstrip() for line in typed.splitlines()}
    assert all(line in said or line.endswith(" …") or line.startswith("… ") for line in shown)

"""A request too long for the target gives way to an extract, and reads back whole."""

from context_compaction.pipeline.effort import shorten_request
from context_compaction.request import CompactRequest

from tests.support.json_types import Json
from tests.support.promises import check_promises, temporary_archive
from tests.support.small import COUNT, answered, assistant, compacted, lines, read, user

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
    assert any("leaves no room in full" in warning for warning in warnings)


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


def test_an_extract_is_not_made_of_an_extract() -> None:
    once = shorten_request(read([user(PASTED)]), count=COUNT, max_tokens=500)
    assert once.edits
    assert shorten_request(once.messages, count=COUNT, max_tokens=200).messages is once.messages

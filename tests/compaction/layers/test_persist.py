"""Persist: a large result goes to the archive, and a preview made for its kind stays."""

import json

import pytest
from context_compaction.layers.persist import persist
from context_compaction.layers.preview import preview
from context_compaction.messages.model import Image, Text
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest

from tests.support.cpu_time import assert_growth
from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.script import TINY_PNG
from tests.support.small import (
    COUNT,
    answered,
    assistant,
    call,
    compacted,
    image,
    lines,
    read,
    result,
    result_of,
    text,
    user,
)

BIG = lines("big", 2_000)


def test_a_result_above_the_limit_becomes_a_marker_wherever_it_stands() -> None:
    messages = read([user("go"), *answered("a", "Bash", BIG), *answered("b", "Bash", "small")])
    step = persist(messages, count=COUNT, result_tokens=1_000)
    [blob] = step.blobs
    assert blob.data.decode() == BIG
    [marker] = result_of(step.messages, "a").content
    assert isinstance(marker, Text)
    assert marker.text.startswith(
        f'<persisted-output id="{blob.output_id}" tool="Bash" chars="{len(BIG)}">\n'
    )
    assert result_of(step.messages, "b") is result_of(messages, "b")
    assert step.messages[0] is messages[0]


def test_of_the_newest_results_the_largest_go_first_until_the_rest_is_within_its_limit() -> None:
    payload = [
        user("go"),
        assistant(call("a", "Bash"), call("b", "Bash"), call("c", "Bash")),
        user([
            result("a", lines("a", 300)),
            result("b", lines("b", 900)),
            result("c", lines("c", 310)),
        ]),
    ]
    messages = read(payload)
    step = persist(messages, count=COUNT, newest_chars=20_000, preview_chars=300)
    assert [edit.tool_name for edit in step.edits] == ["Bash"]
    assert result_of(step.messages, "b") is not result_of(messages, "b")
    assert result_of(step.messages, "a") is result_of(messages, "a")


def test_older_results_do_not_count_against_the_newest_message() -> None:
    messages = read([user("go"), *answered("a", "Bash", BIG), *answered("b", "Bash", "small")])
    assert persist(messages, count=COUNT, newest_chars=1_000).messages is messages


def test_many_newest_results_beside_each_other_cost_in_proportion_to_their_number() -> None:
    def several(count: int) -> None:
        given = [result(f"t{n}", lines(f"row{n}", 40)) for n in range(count)]
        called = assistant(*(call(f"t{n}", "Read", file_path=f"{n}.py") for n in range(count)))
        persist(read([user("go"), called, user(given)]), count=COUNT, unread_tokens=3_000)

    assert_growth(several, 800)


def test_pictures_stay_beside_the_marker_of_a_lists_text() -> None:
    messages = read([user("go"), *answered("a", "Shot", [text(BIG), image(TINY_PNG), text("end")])])
    step = persist(messages, count=COUNT, result_tokens=1_000)
    marker, picture = result_of(step.messages, "a").content
    assert isinstance(marker, Text)
    assert isinstance(picture, Image)
    assert [blob.data.decode() for blob in step.blobs] == [BIG, "end"]
    assert all(blob.output_id in marker.text for blob in step.blobs)


def test_a_marker_that_would_not_be_smaller_is_not_made() -> None:
    messages = read([user("go"), *answered("a", "Bash", "x" * 300)])
    assert persist(messages, count=COUNT, result_tokens=10).messages is messages


def test_a_persisted_result_is_not_persisted_again() -> None:
    messages = read([user("go"), *answered("a", "Bash", BIG)])
    once = persist(messages, count=COUNT, result_tokens=1_000).messages
    assert persist(once, count=COUNT, result_tokens=10).messages is once


async def test_below_the_trigger_only_the_newest_result_is_persisted() -> None:
    huge = lines("huge", 30_000)
    old = [user("go"), *answered("a", "Bash", huge), assistant("seen"), user("more")]
    payload = [*old, *answered("b", "Bash", lines("other", 30_000))]
    answer = await compacted(payload, context_window=1_500_000)
    assert [edit.index for edit in answer.edits] == [6]
    assert all(one is other for one, other in zip(old, answer.messages, strict=False))
    assert answer.status == "compacted"


async def test_a_persisted_result_reads_back_under_the_id_in_its_marker() -> None:
    payload = [user("go"), *answered("a", "Bash", lines("huge", 30_000))]
    request = CompactRequest(format="anthropic", context_window=1_200_000)
    async with temporary_archive() as archive:
        answer = await compact(payload, request, archive=archive)
        [pointer] = answer.edits[0].pointers
        assert pointer in answer.messages[-1]["content"][0]["content"]
        found = await archive.read_output(pointer)
    assert found.data.decode() == lines("huge", 30_000)


def _rows(count: int) -> list[Json]:
    return [{"name": f"item {n}", "price": n, "tags": ["a", "b"]} for n in range(count)]


def test_a_preview_of_json_has_one_header_for_records_of_one_shape_and_a_row_for_each() -> None:
    shown = preview(json.dumps({"total": 900, "items": _rows(900)}), max_chars=600)
    assert shown.startswith(
        "total: 900\nitems: 900 records: name | price (all: tags: a, b)\nitem 0 | 0\nitem 1 | 1\n"
    )
    assert len(shown) <= 600


def test_a_preview_of_plain_text_is_its_head_and_tail_with_the_gap_counted() -> None:
    whole = "\n".join(f"The {n}th thing that happened was quiet." for n in range(900))
    shown = preview(whole, max_chars=600).split("\n")
    [gap] = [at for at, line in enumerate(shown) if line.endswith(" lines left out …")]
    assert gap > 1
    assert whole.startswith("\n".join(shown[:gap]).removesuffix(" …"))
    assert whole.endswith("\n".join(shown[gap + 1 :]))
    assert int(shown[gap].split(" ")[1]) == 900 - (len(shown) - 1)


@pytest.mark.parametrize(
    ("whole", "expected"),
    [
        (lines("build", 500) + "\nFAILED test_a.py::test_b\n" + lines("after", 500), "FAILED"),
        ("\n".join(["id,name,price", *(f"{n},item,{n * 3}" for n in range(900))]), "id,name,price"),
        ("def first(): pass\n" + "    x = 1\n" * 900 + "class Second:\n    def third(): pass\n" * 2,
         "class Second:"),
        ("diff --git a/x b/x\n--- a/x\n+++ b/src/x.py\n" + "+new\n-old\n" * 900,
         "b/src/x.py +900 -900"),
        (lines("run", 900) + "\nProcess exited with code 3", "exited with code 3"),
    ],
)  # fmt: skip
def test_a_preview_shows_the_lines_that_matter_for_its_kind(whole: str, expected: str) -> None:
    shown = preview(whole, max_chars=800)
    assert expected in shown
    assert len(shown) <= 1_200


def test_a_text_within_the_limit_is_its_own_preview() -> None:
    assert preview("short\ntext", max_chars=10) == "short\ntext"

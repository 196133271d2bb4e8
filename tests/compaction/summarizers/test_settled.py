"""A review's points that later turns mended are told in short."""

from context_compaction import formats
from context_compaction.summarizers import SummaryInput
from context_compaction.summarizers.extractive import writer
from context_compaction.tokens.counter import counter_for
from hypothesis import given
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.small import assistant, call, result, user

COUNT = counter_for("gpt-4o")
NAMES = ("reader", "writer", "wal", "shards")


def point_of(name: str) -> str:
    return (
        f"### The {name} trusts its input\n\n**Severity: low**\n\n- `src/{name}.go:12`\n\n"
        f"Whoever sends to the {name} decides how much of `{name}_buffer` is taken.\n"
    )


def written(messages: list[Json]) -> str:
    request = SummaryInput(formats.parse(messages, format="anthropic"), 2_000)
    return writer.write(request, COUNT)


def edited(name: str) -> list[Json]:
    edit = call(name, "Edit", file_path=f"/w/src/{name}.go", old_string="a", new_string="b")
    return [assistant(edit), user([result(name, "Done.")])]


@given(mended=st.sets(st.sampled_from(NAMES)), is_finished=st.booleans())
def test_points_whose_files_a_finished_turn_changed_are_told_in_short(
    *, mended: set[str], is_finished: bool
) -> None:
    review = "# Review\n\n" + "\n".join(map(point_of, NAMES))
    talk = [user("Review it."), assistant(review), user("Mend some of it.")]
    talk += [message for name in sorted(mended) for message in edited(name)]
    talk.append(assistant("I mended what you asked for."))
    text = written([*talk, user("Thanks."), assistant("Fine.")] if is_finished else talk)
    for name in NAMES:
        is_short = is_finished and name in mended and len(mended) > 1
        assert f"The {name} trusts its input" in text
        assert (f"`{name}_buffer`" in text) is not is_short
        assert (f"The {name} trusts its input [in short: " in text) is is_short


def test_a_report_that_came_after_the_changes_is_told_whole() -> None:
    work = [user("Mend it."), *edited("wal"), *edited("writer"), assistant("Done.")]
    report = "\n".join(map(point_of, ("wal", "writer")))
    text = written([*work, user("Report."), assistant(report), user("Thanks."), assistant("Fine.")])
    assert "`wal_buffer`" in text
    assert "in short" not in text

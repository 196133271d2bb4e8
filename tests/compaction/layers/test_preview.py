"""What stays of a large output: within its room, and never less of it where there is more room."""

import json

from context_compaction.activity.error_line import ERROR
from context_compaction.layers.preview import Measure, extract, preview, words_sought
from hypothesis import given
from hypothesis import strategies as st

from tests.support.small import COUNT

WORDS = [
    "alpha",
    "Beta",
    "gamma_delta",
    "x = 1",
    "error:",
    "def f():",
    "  return",
    "2024-05-01",
    "",
]
LINES = st.lists(
    st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join), min_size=1, max_size=120
)
TEXTS = LINES.map(lambda said: "\n".join(f"{n}: {line}" for n, line in enumerate(said)))
# A screen that is drawn anew, with one line of it changed each time.
SCREENS = st.tuples(
    st.lists(st.sampled_from(WORDS), min_size=4, max_size=12),
    st.lists(st.integers(0, 99).map("{} running".format), min_size=2, max_size=9),
).map(lambda drawn: "\n".join("\n".join([*drawn[0], state]) for state in drawn[1]))
ROWS = st.lists(
    st.fixed_dictionaries({
        "id": st.integers(),
        "name": st.sampled_from(WORDS),
        "kind": st.just("a"),
    }),
    min_size=3,
    max_size=60,
).map(json.dumps)
MEASURES: st.SearchStrategy[Measure] = st.sampled_from([len, COUNT.text])


def lines_of(shown: str) -> list[str]:
    """The lines of a preview that stand in the text as they are."""
    return [line for line in shown.split("\n") if line and not line.startswith("…")]


@given(text=TEXTS | ROWS | SCREENS | st.text(), room=st.integers(0, 3_000), measure=MEASURES)
def test_an_extract_is_within_its_room(text: str, room: int, measure: Measure) -> None:
    shown = extract(text, room, measure=measure, sought=["alpha"])
    assert not lines_of(shown) or measure(shown) <= room or shown == text


@given(
    text=TEXTS | ROWS | SCREENS,
    room=st.integers(0, 2_000),
    more=st.integers(0, 500),
    sought=st.lists(st.sampled_from(WORDS), max_size=3),
    measure=MEASURES,
)
def test_more_room_never_keeps_less(
    text: str, room: int, more: int, sought: list[str], measure: Measure
) -> None:
    less, fuller = (
        extract(text, size, measure=measure, sought=sought) for size in (room, room + more)
    )
    shown = lines_of(fuller)
    for line in lines_of(less):
        start = line.removesuffix(" …")
        assert any(told.startswith(start) for told in shown)


@given(
    said=st.from_regex(ERROR, fullmatch=True, alphabet=st.characters(codec="ascii"))
    | st.from_regex(r"[Ee]x[Ii]ted with code [1-9]|return ?code: 1|EXIT 3", fullmatch=True),
    at=st.integers(500, 1_500),
)
def test_a_line_that_names_an_error_is_shown_wherever_it_stands(said: str, at: int) -> None:
    rows = [f"entry {n}: nothing of note was seen here" for n in range(2_000)]
    rows[at] = f"entry {at}: {said}"
    assert rows[at] in preview("\n".join(rows)).split("\n")


def test_what_a_request_names_is_shown_before_what_stands_beside_it() -> None:
    rows = [f"entry {n}: nothing of note was seen here" for n in range(2_000)]
    rows[1_234] = "entry 1234: retry_budget was seen at 17"
    asked = words_sought("Where do we set the retry_budget, and to what?")
    shown = extract("\n".join(rows), 120, measure=COUNT.text, sought=asked)
    assert rows[1_234] in shown
    assert shown.startswith(rows[0])
    assert rows[-1] in shown


def test_a_word_that_stands_everywhere_leads_nowhere() -> None:
    rows = [f"entry {n}: of the journal" for n in range(400)]
    asked = words_sought("What does the journal say?")
    assert extract("\n".join(rows), 60, measure=COUNT.text, sought=asked) == extract(
        "\n".join(rows), 60, measure=COUNT.text
    )


def test_a_gap_counts_the_lines_of_a_text_too_long_to_look_through() -> None:
    whole = "\n".join(f"line {n} of very many, none of which says much" for n in range(40_000))
    shown = preview(whole).split("\n")
    left_out = sum(int(line.split(" ")[1]) for line in shown if line.endswith("left out …"))
    told = sum(1 for line in shown if not line.startswith("…"))
    assert told + left_out == 40_000


@given(st.integers(30, 400))
def test_of_records_a_row_is_shown_before_the_names_of_all_columns(room: int) -> None:
    """A request has the words of column names in it; without a row these tell nothing."""
    flights = [
        {"flight_number": f"HAT{n}", "departure_time_in_the_zone_of_the_airport": f"{n % 24}:00"}
        | {f"available_seats_in_class_{kind}": n * 7 % 30 for kind in ("economy", "business")}
        for n in range(100, 140)
    ]
    asked = "Do you have any available flight with a later departure, in economy class?"
    shown = extract(json.dumps(flights), room, measure=COUNT.text, sought=words_sought(asked))
    assert "HAT100" in shown or "records" not in shown


def test_a_screen_drawn_anew_is_shown_as_it_was_last() -> None:
    steps = [f"  step {number} of the build" for number in range(8)]
    screens = ["\n".join(["JOBS", *steps, f"* tests {done} of 90 done"]) for done in range(1, 90)]
    shown = extract("\n".join(screens), 3_000, measure=len)
    assert [shown.count(step) for step in steps] == [1] * 8
    assert shown.index(steps[0]) < shown.index("* tests 89 of 90 done")
    assert shown.index(steps[0]) > shown.index("* tests 2 of 90 done")

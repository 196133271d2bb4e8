"""Previews of a large output: they fit their room, and more room never shows less."""

import pytest
from context_compaction.layers.preview import Measure, extract, preview, search_words
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
TEXTS = LINES.map(lambda content: "\n".join(f"{n}: {line}" for n, line in enumerate(content)))
MEASURES: st.SearchStrategy[Measure] = st.sampled_from([len, COUNT.text])


def lines_of(shown: str) -> list[str]:
    """Return the lines of a preview that are copied from the text."""
    return [line for line in shown.split("\n") if line and not line.startswith("…")]


@given(text=TEXTS | st.text(), room=st.integers(0, 3_000), measure=MEASURES)
def test_extract_fits_its_room(text: str, room: int, measure: Measure) -> None:
    shown = extract(text, room, measure=measure, words=["alpha"])
    assert not lines_of(shown) or measure(shown) <= room or shown == text


@given(
    text=TEXTS,
    room=st.integers(0, 2_000),
    more=st.integers(0, 500),
    sought=st.lists(st.sampled_from(WORDS), max_size=3),
    measure=MEASURES,
)
def test_extract_never_shows_less_when_it_has_more_room(
    text: str, room: int, more: int, sought: list[str], measure: Measure
) -> None:
    less, fuller = (
        extract(text, size, measure=measure, words=sought) for size in (room, room + more)
    )
    shown = lines_of(fuller)
    for line in lines_of(less):
        start = line.removesuffix(" …")
        assert any(line.startswith(start) for line in shown)


@pytest.mark.parametrize(
    "content", ["TypeError: no", "FAILED test_a.py", "exited with exit code 3"]
)
def test_preview_shows_a_failure_line_at_any_position(content: str) -> None:
    rows = [f"entry {n}: nothing of note was seen here" for n in range(2_000)]
    rows[1_100] = f"entry 1100: {content}"
    assert rows[1_100] in preview("\n".join(rows)).split("\n")


def test_extract_shows_lines_with_search_words() -> None:
    rows = [f"entry {n}: nothing of note was seen here" for n in range(2_000)]
    rows[1_234] = "entry 1234: retry_budget was seen at 17"
    asked = search_words("Where do we set the retry_budget, and to what?")
    shown = extract("\n".join(rows), 120, measure=COUNT.text, words=asked)
    assert rows[1_234] in shown
    assert shown.startswith(rows[0])
    assert rows[-1] in shown


def test_extract_ignores_a_search_word_that_occurs_in_every_line() -> None:
    rows = [f"entry {n}: of the journal" for n in range(400)]
    asked = search_words("What does the journal say?")
    assert extract("\n".join(rows), 60, measure=COUNT.text, words=asked) == extract(
        "\n".join(rows), 60, measure=COUNT.text
    )


def test_gap_counts_lines_that_were_not_scanned() -> None:
    complete = "\n".join(f"line {n} of very many, none of which says much" for n in range(40_000))
    shown = preview(complete).split("\n")
    omitted = sum(int(line.split(" ")[1]) for line in shown if line.endswith("omitted …"))
    shown_lines = sum(1 for line in shown if not line.startswith("…"))
    assert shown_lines + omitted == 40_000

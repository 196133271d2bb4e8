"""Questions in a user's own words, and the passages that hits show."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from context_compaction import formats
from context_compaction.archive.local.archive import open_archive
from context_compaction.archive.search.hits import passage_span
from context_compaction.archive.values import Query, SearchPage
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


async def _ask(
    folder: Path, texts: Sequence[str], query: str, kind: Literal["words", "phrase"] = "words"
) -> SearchPage:
    async with open_archive(folder / "archive", index_root=folder / "index") as archive:
        raws = [{"role": "user", "content": text} for text in texts]
        await archive.append("s", formats.parse(raws, format="anthropic"), format="anthropic")
        return await archive.search(Query(query, kind=kind))


async def test_search_finds_an_answer_by_the_words_of_its_question(tmp_path: Path) -> None:
    talk = [
        "Which port does the staging database of the billing team listen on?",
        "Let me look.",
        "It is 5433 there, not the usual port.",
        *(f"Unrelated remark number {count} about a port in Spain." for count in range(40)),
    ]
    page = await _ask(tmp_path, talk, "port of the staging database of the billing team")
    assert [hit.seq for hit in page.hits[:2]] == [0, 2]


REMARKS = tuple(f"Unrelated remark number {count} about Spain." for count in range(12))


async def test_search_ranks_by_small_words_when_messages_are_alike(tmp_path: Path) -> None:
    talk = ["Before the deploy it rained.", "The deploy went out and then it rained."]
    page = await _ask(tmp_path, [*talk, *REMARKS], "what happened before the deploy")
    assert [hit.seq for hit in page.hits[:2]] == [0, 1]


_LINES = st.lists(
    st.lists(st.sampled_from(["harbour", "lock", "Kran7", "der", "is", "x_y"]), min_size=1),
    min_size=1,
    max_size=30,
)


@given(_LINES, st.integers(0, 40))
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_phrase_search_shows_every_exact_text_when_it_is_repeated(
    tmp_path: Path, lines: list[list[str]], index: int
) -> None:
    texts = [" ".join(words) for words in lines]
    expected = texts[index % len(texts)]
    with TemporaryDirectory(dir=tmp_path) as folder:
        page = await _ask(Path(folder), texts, expected, kind="phrase")
    assert any(expected in hit.snippet for hit in page.hits)
    assert page.next_cursor or sum(1 + hit.repeats for hit in page.hits) == page.total


async def test_search_shows_different_names_when_the_query_is_one_word(tmp_path: Path) -> None:
    repeated = [f"context, context and again the context of case {count}" for count in range(30)]
    names = ["contextWindow", "contextTokens", "lib/context/store.py", "get_context", "context-id"]
    texts = [f"{'The value of the call is set by ' * 30}{name} alone." for name in names]
    page = await _ask(tmp_path, [*repeated, *texts], "context")
    shown = " ".join(hit.snippet for hit in page.hits)
    assert all(name in shown for name in names)
    assert page.total == len(repeated) + len(texts)


PLACES = st.lists(
    st.sampled_from(("word", "D15.", "- item:", "\n", "\n\n", "  ", " ", "é…", "x" * 40)),
    min_size=1,
    max_size=60,
).map("".join)


@given(text=PLACES, data=st.data(), max_chars=st.integers(1, 300))
def test_passage_contains_the_match_and_respects_its_size(
    text: str, data: st.DataObject, max_chars: int
) -> None:
    index = data.draw(st.integers(0, len(text) - 1))
    start, stop = passage_span(text, index, max_chars)
    assert 0 <= start <= index < stop <= len(text)
    assert stop - start <= max_chars
    assert passage_span(text, index, len(text)) == (0, len(text))


def test_passage_has_whole_paragraphs_and_list_items() -> None:
    list_ = "Decisions:\n" + "\n".join(f"- D{n}: we do {n}, for a reason." for n in range(9))
    text = f"{'Before. ' * 90}\n\n{list_}\n\n{'After that. ' * 90}"
    start, stop = passage_span(text, text.index("D3"), 420)
    assert text[start:stop] == list_
    start, stop = passage_span(text, text.index("After that. ") + 600, 200)
    assert text[start:stop].startswith("After that.")
    assert text[start:stop].endswith("that.")

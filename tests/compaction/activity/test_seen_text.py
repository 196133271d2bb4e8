"""Whether a file still says what a tool showed of it, however the tool dressed it."""

import pytest
from context_compaction.activity.read_state import matches_tool_output
from hypothesis import given
from hypothesis import strategies as st

FILE = "import os\n\n\ndef main():\n    return 1\n"
LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"])), min_size=1)


def numbered(text: str, mark: str = "\t", first: int = 1) -> str:
    lines = text.splitlines()
    return "\n".join(f"{n:>6}{mark}{line}" for n, line in enumerate(lines, first))


DRESSED = [
    FILE,
    FILE.strip(),
    numbered(FILE),
    numbered(FILE, "→"),
    numbered(FILE, "|"),
    numbered(FILE, ": "),
    numbered(FILE, ". "),
    f"<file>\n{numbered(FILE, '| ').replace('| ', '|')}\n</file>",
    f"<content>\n{FILE}\n</content>",
    f"```python\n{FILE}```",
    f"File: main.py\n---\n{FILE}",
    f"{numbered(FILE)}\n\n(End of file - total 5 lines)",
]


@pytest.mark.parametrize("shown", DRESSED)
def test_a_dressed_text_is_the_same_file(shown: str) -> None:
    assert matches_tool_output(FILE, shown, is_whole=True)


@pytest.mark.parametrize("shown", DRESSED)
@pytest.mark.parametrize(
    "now",
    [
        FILE.replace("1", "2"),
        FILE.replace("    return 1\n", ""),
        FILE + "\n\nmain()\n",
        FILE.replace("import os\n", "import os\nimport re\n"),
        "",
    ],
)
def test_another_file_is_told_from_it(shown: str, now: str) -> None:
    assert not matches_tool_output(now, shown, is_whole=True)


def test_a_range_needs_to_stand_somewhere_in_the_file() -> None:
    part = numbered("def main():\n    return 1", first=4)
    assert matches_tool_output("# new first line\n" + FILE, part, is_whole=False)
    assert not matches_tool_output(FILE.replace("1", "2"), part, is_whole=False)
    assert not matches_tool_output("def main():\n    pass\n    return 1\n", part, is_whole=False)


@pytest.mark.parametrize(
    "shown",
    [
        numbered(FILE) + "\n(File has more lines. Use 'offset' to read beyond line 5)",
        f"{FILE}\n... [12000 characters truncated] ...",
    ],
)
def test_what_a_tool_left_out_is_not_taken_for_a_change(shown: str) -> None:
    assert matches_tool_output(FILE + "\nmore = 2\n" * 50, shown, is_whole=True)


def test_a_table_that_begins_with_numbers_is_no_numbered_text() -> None:
    table = "1\tone\n2\ttwo\n"
    assert matches_tool_output(table, table, is_whole=True)
    assert not matches_tool_output("1\tone\n3\ttwo\n", table, is_whole=True)


def test_the_end_of_a_very_long_line_does_not_matter() -> None:
    assert matches_tool_output("x" * 5_000, f"{'x' * 2_000}", is_whole=True)


@given(lines=LINES, number=st.booleans())
def test_every_text_agrees_with_itself(lines: list[str], number: bool) -> None:
    text = "\n".join(lines)
    assert matches_tool_output(text, numbered(text) if number else text, is_whole=True)

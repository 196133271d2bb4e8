"""Files known in parts: what a change elsewhere leaves, and what it may have changed."""

from typing import TypeAlias

from context_compaction.activity.file_replay import replay_files
from context_compaction.activity.replayed_file import ReplayedFile
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cpu_time import assert_growth
from tests.support.json_types import Json
from tests.support.small import answered, read, user

# Some alike, some that an edit may find once.
LINES = st.sampled_from(("", "}", "x = 1", "def f():", "def g():", "  x = 1", "y", "end", "it’s"))
ROWS = st.lists(LINES, min_size=1, max_size=14)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(1, 12), st.integers(1, 7), st.just(())),
        st.tuples(st.just("edit"), st.integers(0, 60), st.integers(1, 30), ROWS.map(tuple)),
        st.tuples(st.just("lines"), st.integers(0, 12), st.integers(1, 5), ROWS.map(tuple)),
        st.tuples(st.just("patch"), st.integers(0, 12), st.integers(1, 4), ROWS.map(tuple)),
        st.tuples(st.just("all"), st.integers(0, 60), st.integers(1, 9), ROWS.map(tuple)),
        st.tuples(st.just("sed"), st.just(0), st.just(0), ROWS.map(tuple)),
        st.tuples(st.just("append"), st.just(0), st.just(0), ROWS.map(tuple)),
    ),
    min_size=2,
    max_size=12,
)


Step: TypeAlias = tuple[str, int, int, tuple[str, ...]]
Done: TypeAlias = tuple[list[str], list[Json]]


def parts_of(file: ReplayedFile) -> list[tuple[int, str]]:
    return [(part.start_line, part.text) for part in file.parts]


def replayed(*parts: list[Json]) -> ReplayedFile:
    return replay_files(read([user("Go."), *(row for part in parts for row in part)]))["a.py"]


def shown(rows: list[str], first: int, count: int, number: str = "r") -> list[Json]:
    """A read of so many lines, numbered as hosts do."""
    stop = min(first + count, len(rows) + 1)
    text = "\n".join(f"{n:6}\t{rows[n - 1]}" for n in range(first, stop))
    return answered(number, "Read", text, file_path="a.py", offset=first, limit=count)


def edited(old: str, new: str, number: str = "e", *, replace_all: bool = False) -> list[Json]:
    arguments: Json = {"old_string": old, "new_string": new}
    if replace_all:
        arguments["replace_all"] = True
    return answered(number, "Edit", "ok", file_path="a.py", **arguments)


def patched(old: list[str], new: list[str], number: str) -> list[Json]:
    body = "\n".join([*(f"-{row}" for row in old), *(f"+{row}" for row in new)])
    patch = f"*** Begin Patch\n*** Update File: a.py\n@@\n{body}\n*** End Patch"
    return answered(number, "apply_patch", "Success.", input=patch)


def check(file: ReplayedFile, rows: list[str]) -> None:
    """All that is told of the file stands in its `rows`, and where it is told to."""
    assert file.text is None or file.text.rstrip("\n") == "\n".join(rows).rstrip("\n")
    for part in file.parts:
        text = part.text.rstrip("\n")
        if part.is_moved:
            assert f"\n{text}" in "\n" + "\n".join(rows)
        else:
            assert "\n".join(rows[part.start_line - 1 :]).startswith(text)
    whole = "\n".join(("", *rows, ""))
    for left in file.loose:
        assert "\n" * left.begins + left.text + "\n" * left.ends in whole


def replaced(rows: list[str], old: str, new: str, number: str, *, times: int) -> Done:
    """An edit that the tool has found once, or wherever it is; none where it would have failed."""
    text = "\n".join(rows)
    if not old or (times and text.count(old) != times):
        return rows, []
    return text.replace(old, new).split("\n"), edited(old, new, number, replace_all=not times)


def patch_done(rows: list[str], old: list[str], new: tuple[str, ...], number: str) -> Done:
    """A patch of the first lines that are its old ones."""
    if not old:
        return rows, []
    at = next(i for i in range(len(rows)) if rows[i : i + len(old)] == old)
    return [*rows[:at], *new, *rows[at + len(old) :]], patched(old, list(new), number)


def done(step: Step, rows: list[str], number: str) -> Done:
    """The lines after a step, and what the host tells of it."""
    what, at, size, new = step
    text, body = "\n".join(rows), "\n".join(new)
    match what:
        case "read":
            return rows, shown(rows, at, size, number) if at <= len(rows) else []
        case "append":
            command = f"cat >> a.py <<'E'\n{body}\nE"
            return [*rows, *new], answered(number, "Bash", "", command=command)
        case "sed":
            command = "sed -i 's/x/zz/g' a.py"
            changed = [row.replace("x", "zz") for row in rows]
            return changed, answered(number, "Bash", "", command=command)
        case "patch":
            return patch_done(rows, rows[at : at + size], new, number)
        case "lines":
            return replaced(rows, "\n".join(rows[at : at + size]), body, number, times=1)
        case _:
            return replaced(rows, text[at : at + size], body, number, times=int(what == "edit"))


@settings(max_examples=400)
@given(rows=st.lists(LINES, min_size=4, max_size=14), steps=STEPS)
def test_what_is_told_of_a_file_that_is_not_known_as_a_whole_stands_in_it(
    rows: list[str], steps: list[Step]
) -> None:
    messages: list[Json] = [user("Go.")]
    for n, step in enumerate(steps):
        rows, told = done(step, rows, str(n))
        messages += told
    for file in replay_files(read(messages)).values():
        if file.is_sure:
            check(file, rows)


def left(file: ReplayedFile) -> list[str]:
    return [part.text for part in file.loose]


def test_what_an_edit_leaves_in_a_file_that_was_never_shown_is_known() -> None:
    made = edited("a = 1", "a = 2\nb = 3", "1"), patched(["c"], ["c", "d = 4"], "2")
    assert left(replayed(*made)) == ["c\nd = 4", "a = 2\nb = 3"]
    # A later edit whose old text stands in it is made to it; one that may reach it takes lines.
    made = *made, edited("b = 3", "b = 5", "3")
    assert left(replayed(*made)) == ["a = 2\nb = 5", "c\nd = 4"]
    assert left(replayed(*made, edited("b = 5\ny", "z", "4"))) == ["z", "a = 2", "c\nd = 4"]
    file = replayed(edited("a = 1", "a = 2", "1"))
    assert (file.is_sure, file.text, file.parts) == (True, None, ())


def test_lines_that_are_read_say_where_what_an_edit_left_stands() -> None:
    rows = [f"line {n}" for n in range(1, 31)]
    edit = edited("line 12", "line 12\nnew", "1")
    rows[11:12] = ["line 12", "new"]
    file = replayed(edit, shown(rows, 10, 6))
    assert (left(file), file.touched) == ([], ((12, 13),))
    assert left(replayed(edit, shown(rows, 20, 6))) == ["line 12\nnew"]
    # What a read shows in part may have been changed since; one of all lines shows all.
    assert left(replayed(edit, shown(rows, 13, 3))) == []
    assert left(replayed(edit, shown(rows, 1, 31))) == []


def test_a_patch_that_is_not_where_it_was_looked_for_leaves_its_lines_all_the_same() -> None:
    file = replayed(shown(["one", "two"], 1, 2), patched(["three"], ["three", "four"], "2"))
    assert (file.text, left(file)) == (None, ["three\nfour"])


def test_an_edit_elsewhere_leaves_the_parts_that_it_cannot_have_changed() -> None:
    rows = [f"line {n}" for n in range(1, 31)]
    file = replayed(
        shown(rows, 1, 5, "1"), shown(rows, 20, 5, "2"), edited("a\nb", "a\nnew\nb", "3")
    )
    assert parts_of(file) == [(1, "\n".join(rows[:5])), (20, "\n".join(rows[19:24]))]
    assert [part.is_moved for part in file.parts] == [False, True]
    assert (file.is_sure, file.lost_at) == (True, 6)
    assert "not known here" in file.lost


def test_of_a_part_that_an_edit_may_have_reached_those_lines_go() -> None:
    rows = [f"line {n}" for n in range(1, 31)]
    file = replayed(shown(rows, 10, 5), edited("line 14\nline 15\nline 16", "line 14\nsixteen"))
    # What was the first of the old lines stands still.
    assert parts_of(file) == [(10, "\n".join(rows[9:14]))]
    file = replayed(shown(rows, 10, 5), edited("line 14\nline 15", "fourteen\nfifteen"))
    assert parts_of(file) == [(10, "\n".join(rows[9:13]))]


def test_a_later_read_says_where_a_part_stands() -> None:
    rows = [f"line {n}" for n in range(1, 31)]
    before = shown(rows, 10, 5, "1")
    rows[2:4] = ["three", "and more", "four"]
    edit = edited("line 3\nline 4", "three\nand more\nfour", "2")
    file = replayed(before, edit, shown(rows, 14, 5, "3"))
    assert parts_of(file) == [(11, "\n".join(rows[10:18]))]
    assert not file.parts[0].is_moved


def test_a_patch_of_a_file_known_in_parts_is_made_where_its_old_lines_are() -> None:
    rows = [f"line {n}" for n in range(1, 31)]
    file = replayed(
        shown(rows, 1, 5, "1"),
        shown(rows, 20, 5, "2"),
        patched(["line 21", "line 22"], ["line 21", "more", "line 22"], "3"),
        patched(["line 12"], ["twelve"], "4"),
    )
    changed = ["line 20", "line 21", "more", "line 22", "line 23", "line 24"]
    assert parts_of(file) == [(1, "\n".join(rows[:5])), (20, "\n".join(changed))]
    assert (file.edits, file.touched) == (2, ((22, 22),))
    assert file.doubt is not None
    assert file.doubt.is_slight


def test_lines_without_certain_numbers_are_not_told_as_changed_last() -> None:
    rows = [f"line {n}" for n in range(1, 31)]
    before = (shown(rows, 1, 5, "1"), shown(rows, 20, 5, "2"), edited("line 22", "more", "3"))
    assert replayed(*before).touched == ((22, 22),)
    assert replayed(*before, edited("a\nb", "a\nnew\nb", "4")).touched == ()


def test_where_old_lines_may_stand_is_found_soon_among_thousands_alike() -> None:
    def replay(count: int) -> None:
        before = shown(["}"] * count, 5, count, "1")
        replayed(before, patched(["}"] * (count // 10) + ["end"], ["end"], "2"))

    assert_growth(replay, 5_000)


def test_an_old_text_with_other_quotes_is_taken_for_the_one_that_is_known() -> None:
    rows = ["one", "it’s", "two", "three"]
    file = replayed(shown(rows, 1, 3), edited("it's\ntwo", "it is\n2"))
    assert parts_of(file) == [(1, "one")]


def test_lines_before_which_a_host_may_have_cut_empty_ones_have_no_certain_number() -> None:
    def printed(first: int, last: int, text: str) -> list[Json]:
        return answered(str(first), "Bash", text, command=f"sed -n '{first},{last}p' a.py")

    file = replayed(printed(5, 8, "six\nseven\neight"))
    assert parts_of(file) == [(5, "six\nseven\neight")]
    assert file.parts[0].is_moved
    file = replayed(printed(4, 6, "four\n\nsix"), printed(5, 8, "six\nseven\neight"))
    assert parts_of(file) == [(4, "four\n\nsix\nseven\neight")]


def test_of_several_files_that_one_command_prints_each_has_its_lines_if_all_are_there() -> None:
    command = "cd /app && sed -n '3,4p' a.py; sed -n '8,9p' b.py\nhead -2 a.py"

    def parts(output: str) -> dict[str, list[tuple[int, str]]]:
        files = replay_files(read([user("Go."), *answered("1", "Bash", output, command=command)]))
        return {path.rpartition("/")[2]: parts_of(file) for path, file in files.items()}

    assert parts("three\n\neight\nnine\none\ntwo\n") == {
        "a.py": [(1, "one\ntwo\nthree\n")],
        "b.py": [(8, "eight\nnine")],
    }
    # One of them is shorter than was asked for, and nobody knows which.
    assert parts("three\neight\nnine\none\ntwo\n") == {}
    assert parts("three\nfour\nb.py: No such file\none\ntwo\n") == {}


def test_a_line_that_an_editor_counts_is_not_looked_for_in_parts() -> None:
    rows = [f"line {n}" for n in range(1, 31)]
    command = answered("2", "Bash", "", command="sed -i '12s/line/row/' a.py")
    file = replayed(shown(rows, 10, 5), command)
    assert (parts_of(file), file.is_sure) == ([(10, "\n".join(rows[9:14]))], False)


def test_what_is_empty_behind_the_last_newline_is_no_line_to_an_editor() -> None:
    rows = ["one", "", "three", "four", "", "six"]
    command = answered("9", "Bash", "", command="sed -i 's/^$/x/' a.py")
    for read_to in (rows, [*rows, ""]):  # some tools show it
        file = replayed(shown(read_to, 3, 20), command)
        assert parts_of(file) == [(3, "three\nfour\nx\nsix\n")]
        assert file.is_sure

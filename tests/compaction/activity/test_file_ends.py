"""Whether the last line of a file is ended, which few tools show, and what else a script may do."""

from time import process_time

import pytest
from context_compaction.activity.file_replay import replay_files
from context_compaction.activity.replayed_file import ReplayedFile
from context_compaction.messages import placeholders
from context_compaction.messages.model import make_message
from hypothesis import given
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.small import answered, read, user

NUMBERED = answered("1", "Read", "     1\tone\n     2\ttwo", file_path="a.py")
PLAIN = answered("1", "read", "one\ntwo", path="a.py")
PRINTED = answered("1", "Bash", "one\ntwo", command="cat a.py")


def replayed(*parts: list[Json], path: str = "a.py") -> ReplayedFile:
    return replay_files(read([user("Go."), *(message for part in parts for message in part)]))[path]


def ran(code: str) -> list[Json]:
    return answered("2", "Bash", "", command=f"python3 - <<'E'\n{code}\nE")


READ = "t = open('a.py').read()\n"


@pytest.mark.parametrize("seen", [NUMBERED, PLAIN, PRINTED])
@pytest.mark.parametrize(
    "code",
    [
        "open('a.py', 'w').write(t + 'end')",
        "if t.endswith('two'): t += '!'\nopen('a.py', 'w').write(t + 'end')",
        "open('a.py', 'w').write(t.replace('two', '2') + 'end\\n')",
        "open('a.py', 'w').write('%d' % len(t))",
    ],
)
def test_what_a_script_writes_behind_a_last_line_is_not_sure_where_its_end_was_not_shown(
    seen: list[Json], code: str
) -> None:
    assert not replayed(seen, ran(READ + code)).is_sure


@pytest.mark.parametrize("seen", [NUMBERED, PLAIN, PRINTED])
@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("t = t.replace('one', '1')", "1\ntwo"),
        ("t = t.rstrip() + '\\nend\\n'", "one\ntwo\nend"),
        ("t = 'new\\n' + t", "new\none\ntwo"),
    ],
)
def test_what_it_writes_elsewhere_is(seen: list[Json], code: str, text: str) -> None:
    file = replayed(seen, ran(f"{READ}{code}\nopen('a.py', 'w').write(t)"))
    assert (file.is_sure, (file.text or "").rstrip("\n")) == (True, text)


def test_a_guess_of_the_end_is_shown_with_its_doubt() -> None:
    file = replayed(NUMBERED, ran(READ + "open('a.py', 'w').write(t + 'end\\n')"))
    assert (file.text, file.is_sure) == ("one\ntwo\nend\n", False)
    assert file.doubt is not None
    assert (file.doubt.at, file.doubt.is_slight) == (4, True)


def test_what_was_written_whole_is_known_to_its_end() -> None:
    written = answered("1", "Write", "ok", file_path="a.py", content="one\ntwo")
    file = replayed(written, ran(READ + "open('a.py', 'w').write(t + 'end')"))
    assert (file.text, file.is_sure) == ("one\ntwoend", True)


def test_another_file_that_is_made_of_it_has_its_doubt() -> None:
    code = READ + "open('b.py', 'w').write(t)\n"
    copy = replayed(NUMBERED, ran(code), path="b.py")
    assert (copy.text, copy.is_sure) == ("one\ntwo\n", True)
    added = answered("3", "Bash", "", command="cat >> b.py <<'E'\nthree\nE")
    assert not replayed(NUMBERED, ran(code), added, path="b.py").is_sure


@pytest.mark.parametrize("text", ["one\n", "one"])
def test_a_file_that_was_put_back_may_end_otherwise(text: str) -> None:
    """The tool that showed it before may not have said."""
    copy = make_message(
        "user", placeholders.restored_files([f"File: a.py\n{text}\nEnd of file: a.py"])
    )
    added = answered("3", "Bash", "", command="cat >> a.py <<'E'\nthree\nE")
    file = replay_files((*read([user("x")]), copy, *read(added)))["a.py"]
    assert (file.text, file.is_sure) == ("one\nthree\n", False)


def test_deleting_an_unended_last_line_leaves_one_that_is_ended() -> None:
    written = answered("1", "Write", "ok", file_path="a.py", content="one\ntwo")
    cut = answered("2", "Bash", "", command="sed -i '$d' a.py")
    added = answered("3", "Bash", "", command="cat >> a.py <<'E'\nthree\nE")
    file = replayed(written, cut, added)
    assert file.text == "one\nthree\n"


def test_lines_known_in_parts_lose_the_last_one_where_text_is_added() -> None:
    shown = answered(
        "1", "Read", "     8\teight\n     9\tnine", file_path="a.py", offset=8, limit=9
    )
    added = answered("2", "Bash", "", command="cat >> a.py <<'E'\nten\nE")
    assert [part.text for part in replayed(shown, added).parts] == ["eight"]


def test_replacing_everywhere_at_an_end_that_was_not_shown_is_not_sure() -> None:
    given = {"old_string": "\n", "new_string": ";", "replace_all": True}
    edit = answered("2", "Edit", "ok", file_path="a.py", **given)
    assert not replayed(NUMBERED, edit).is_sure
    given = {"old_string": "o", "new_string": "0", "replace_all": True}
    edit = answered("2", "Edit", "ok", file_path="a.py", **given)
    assert replayed(NUMBERED, edit).is_sure


@pytest.mark.parametrize("leave", ["SystemExit", "SystemExit(0)", "SystemExit('no')"])
def test_what_follows_where_a_script_may_have_ended_is_not_sure(leave: str) -> None:
    written = answered("1", "Write", "ok", file_path="a.py", content="one\n")
    code = f"{READ}if 'one' in t: raise {leave}\nopen('a.py', 'w').write('none')"
    file = replayed(written, ran(code))
    assert (file.text, file.is_sure) == ("one\n", False)


@pytest.mark.parametrize("depth", [1, 2, 3, 6])
def test_loops_within_loops_end_soon_and_leave_a_doubt(depth: int) -> None:
    """Ten turns in each of seven loops took minutes."""
    heads = [f"{' ' * n}for a{n} in {tuple('0123456789')}:" for n in range(depth + 1)]
    code = READ + "\n".join([*heads, f"{' ' * (depth + 1)}t = t.replace('o', '0', 1) + a{depth}"])
    code += "\nopen('a.py', 'w').write(t)"
    start_seconds = process_time()
    written = answered("1", "Write", "ok", file_path="a.py", content="o" * 2_000)
    assert replayed(written, ran(code)).is_sure is (depth < 3)
    assert process_time() - start_seconds < 2


def test_a_text_written_behind_one_that_is_not_known_is_not_all_of_the_file() -> None:
    written = answered("1", "Write", "ok", file_path="a.py", content="one\n")
    code = (
        f"{READ}b = open('b.py').read()\nf = open('a.py', 'w')\nf.write(b)\nf.write(t)\nf.close()"
    )
    assert not replayed(written, ran(code)).is_sure


def test_a_deleted_file_over_which_an_unknown_one_is_copied_may_be_there() -> None:
    gone = answered("1", "Bash", "", command="rm a.py")
    copied = answered("2", "Bash", "", command="cp b.py a.py")
    assert replayed(gone).is_sure
    assert not replayed(gone, copied).is_sure


def edited(text: str, old: str, new: str) -> ReplayedFile:
    given: Json = {"file_path": "a.py", "old_string": old, "new_string": new, "replace_all": True}
    written = answered("1", "Write", "ok", file_path="a.py", content=text)
    return replayed(written, answered("2", "Edit", "ok", **given))


@given(
    text=st.text("ab\n", max_size=40),
    old=st.text("ab\n", min_size=1, max_size=3),
    new=st.text("ab\n", max_size=3),
)
def test_what_is_replaced_everywhere_is_as_a_program_replaces_it(
    text: str, old: str, new: str
) -> None:
    if text.count(old):
        file = edited(text, old, new)
        assert (file.text, file.is_sure) == (text.replace(old, new), True)
        assert len(file.touched) <= text.count(old)


@pytest.mark.parametrize("new", ["", "x"])
def test_an_edit_of_no_text_everywhere_ends_what_is_known(new: str) -> None:
    """It is answered at once: to follow it would never end."""
    assert (edited("abc\n", "", new).text, edited("", "", new).text) == (None, new)


def test_a_short_text_replaced_everywhere_in_a_long_file_costs_little() -> None:
    start_seconds = process_time()
    assert edited("x\n" * 20_000, "x\n", "yy\n").text == "yy\n" * 20_000
    assert process_time() - start_seconds < 2

"""One name for a file, however tools and shells spell its path."""

import pytest
from context_compaction.activity.digest import digest
from context_compaction.activity.file_paths import Drives, below_drive, is_absolute, plain_path
from context_compaction.activity.file_replay import replay_files
from hypothesis import given
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.small import answered, read, user

NAMES = st.lists(st.sampled_from(("src", "My Docs", "a.py", "x-1", "ü")), min_size=1, max_size=4)
SPELLINGS = ("{0}:\\{2}", "{1}:\\{2}", "{0}:/{3}", "{1}:/{3}", "/{1}/{3}", "/mnt/{1}/{3}",
             "/cygdrive/{1}/{3}", "{0}:\\\\{2}", "{1}:/./{3}")  # fmt: skip


def spelled(form: str, letter: str, names: list[str]) -> str:
    return form.format(letter.upper(), letter, "\\".join(names), "/".join(names))


@given(letter=st.sampled_from("cdz"), names=NAMES, form=st.sampled_from(SPELLINGS))
def test_each_spelling_of_a_path_on_a_drive_is_one(
    letter: str, names: list[str], form: str
) -> None:
    told = f"{letter.upper()}:/{'/'.join(names)}"
    drives = Drives.named_in([f'cd "{letter}:\\work"'])
    assert drives.plain(spelled(form, letter, names)) == told
    assert drives.plain(told) == plain_path(told) == told
    assert is_absolute(told)
    assert below_drive(spelled(form, letter, names)).replace("\\", "/").endswith("/".join(names))


@pytest.mark.parametrize("path", ["/d/x.py", "/mnt/d/x.py", "d/x.py", "a\\ b.py", "https://a/b//c"])
def test_a_path_of_another_system_stays_as_it_is(path: str) -> None:
    assert Drives.named_in(["https://a.example/d", "src/c:10", "x:y"]).plain(path) == path


@given(forms=st.lists(st.sampled_from(SPELLINGS), min_size=4, max_size=4))
def test_a_file_is_one_under_all_its_spellings(forms: list[str]) -> None:
    wrote, edited, changed, shown = (spelled(form, "d", ["w", "a.py"]) for form in forms)
    messages: list[Json] = [
        user("Go."),
        *answered("0", "Read", "x", file_path="D:\\w\\b.md"),
        *answered("1", "Write", "ok", file_path=wrote, content="one\ntwo\n"),
        *answered("2", "Edit", "ok", file_path=edited, old_string="two", new_string="2"),
        *answered("3", "Bash", "", command=f"sed -i 's/one/1/' '{changed}'"),
        *answered("4", "Read", "     1\t1\n     2\t2\n", file_path=shown),
    ]
    found = {path: file for path, file in replay_files(read(messages)).items() if "a.py" in path}
    assert list(found) == ["D:/w/a.py"]
    file = found["D:/w/a.py"]
    assert (file.text, file.is_sure, file.reads, file.writes) == ("1\n2\n", True, 1, 3)
    told = digest(read(messages))
    assert (told.written, told.edited) == (("D:/w/a.py",), ("D:/w/a.py",))


def test_on_a_drive_letters_are_alike_in_both_cases() -> None:
    messages: list[Json] = [
        user("Go."),
        *answered("1", "Write", "ok", file_path="C:\\Users\\Ann\\a.py", content="one\n"),
        *answered("2", "Edit", "ok", file_path="c:/users/ann/A.py", old_string="o", new_string="O"),
    ]
    [file] = replay_files(read(messages)).values()
    assert (file.path, file.text) == ("C:/Users/Ann/a.py", "One\n")


@pytest.mark.parametrize("command", ["cd D:/w && rm src/a.py", "cd /d/w; rm src/a.py",
                                     "rm /mnt/d/w/src/a.py", "rm -r 'D:\\w\\src'"])  # fmt: skip
def test_a_command_reaches_a_file_that_a_tool_has_named_otherwise(command: str) -> None:
    messages: list[Json] = [
        user("Go."),
        *answered("1", "Write", "ok", file_path="D:\\w\\src\\a.py", content="one\n"),
        *answered("2", "Bash", "", command=command),
    ]
    assert replay_files(read(messages))["D:/w/src/a.py"].is_deleted

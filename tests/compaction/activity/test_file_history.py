"""Files that git takes back, that are renamed, and that a shell elsewhere names."""

import subprocess
import tempfile
from pathlib import Path

from context_compaction.activity.file_replay import replay_files
from context_compaction.activity.replayed_file import ReplayedFile
from context_compaction.messages.model import Messages
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.small import answered, read, user
from tests.support.working_folder import WorkingFolder

NAMES = ("a.py", "b.md", "src/c.py", "src/d.txt")
TEXTS = st.lists(st.sampled_from(("x = 1", "old name", "return x", "# end")), max_size=5).map(
    lambda rows: "".join(f"{row}\n" for row in rows)
)
COMMANDS = (
    "git checkout -- {0}", "git checkout {0}", "git restore {0}", "git checkout .",
    "git checkout HEAD -- {0}", "git restore --source=HEAD --staged --worktree {0}",
    "git reset -q --hard", "git reset -q", "git reset -q {0}", "git restore --staged {0}",
    "git stash -q", "git stash pop -q", "git stash pop", "git stash apply", "git stash drop -q",
    "git stash push -q -- {0}", "git stash -q; ls; git stash pop -q", "git stash",
    "git add {0}", "git add -A", "git add . && git commit -qm one", "git commit -qam 'two: x'",
    "git add {0} && git commit -q -m 'fix: {0}'", "git commit -qm x -- {0}", "git commit -qm more",
    "git mv {0} {1}", "git mv src lib", "git mv lib src", "mv src lib", "mv lib src", "mv {0} {1}",
    "mv {0} src/", "cp {0} {1}", "rm {0}", "git rm -q {0}", "git rm -qf {0}", "rm -rf src",
    "rm -f *.py",
    "sed -i 's/old/new/g' *.py", "sed -i 's/x/y/' {0}", "sed -i 's/e/E/' src/*.py lib/*.py",
    "echo more >> {0}", "cat > {0} <<'E'\nwritten\nE", "cat >> {0} <<'E'\nadded\nE",
    "cd src && sed -i 's/x/z/' c.py", "cd src && git checkout -- c.py", "cd src",
    "cd src && ls && cd ..", "(cd src && sed -i 's/x/w/' *.py); sed -i 's/x/v/' a.py", "cat {0}",
    "cd src && cat c.py",
    "git checkout -q -b next", "git checkout -q -", "git commit -qm e --amend", "git stash -q -u",
    "git checkout HEAD~1 -- {0}", "git checkout -q HEAD~1 2>&1; true", "git status --short",
    "git stash && sed -i 's/x/q/' {0}; git stash pop", "git diff > p && git apply -R p; rm p",
)  # fmt: skip


@st.composite
def work(draw: st.DrawFn) -> list[tuple[str, str, str, str]]:
    """Steps of a session: what is done, to which files, with what text."""
    step = st.tuples(
        st.sampled_from(("read", "write", "edit", "run", "run", "run")),
        st.sampled_from(NAMES), st.sampled_from(NAMES), st.one_of(TEXTS, st.sampled_from(COMMANDS)),
    )  # fmt: skip
    return draw(st.lists(step, min_size=4, max_size=14))


def do(folder: WorkingFolder, step: str, name: str, other: str, text: str) -> None:
    if step == "run" and text in COMMANDS:
        folder.run(text.format(name, other))
    elif step == "read":
        folder.read_claude(name, None, None)
    elif step == "write" and text not in COMMANDS:
        (folder.folder / name).parent.mkdir(exist_ok=True)
        folder.write(name, text)
    elif step == "edit":
        rows = (folder.text(name) or "").split("\n")
        folder.edit(name, rows[0], f"edited {len(folder.payload)}", everywhere=True)


def check(found: dict[str, ReplayedFile], disk: dict[str, str], messages: Messages) -> None:
    for path, file in found.items():
        what = f"{path} at {len(messages)}: {file}, on disk {disk.get(path)!r}"
        if file.is_sure and file.text:
            assert path in disk, what
            assert file.text.rstrip("\n") == disk[path].rstrip("\n"), what
        if file.is_deleted and file.is_sure:
            assert path not in disk, what


@settings(max_examples=60)
@given(
    steps=work(),
    texts=st.tuples(TEXTS, TEXTS, TEXTS),
    shell=st.sampled_from((("shell", False), ("Bash", True), ("run", False), ("run", True))),
    is_clean=st.booleans(),
)
def test_what_git_and_the_shell_do_is_followed_or_said_to_be_uncertain(
    steps: list[tuple[str, str, str, str]],
    texts: tuple[str, ...],
    shell: tuple[str, bool],
    is_clean: bool,
) -> None:
    with tempfile.TemporaryDirectory() as top:
        subprocess.run(["git", "init", "-q", top], check=True)
        begun: dict[str, str] = dict(zip(NAMES, texts, strict=False))
        folder = WorkingFolder(Path(top), begun, shell=shell[0], keeps_shell=shell[1])
        if is_clean:
            folder.run("git add -A && git commit -qm begin")
        for step in steps:
            do(folder, *step)
        messages = read(folder.payload)
        for at in {len(messages) - 1, len(messages) // 2}:
            check(replay_files(messages, until=at), folder.states[at], messages[: at + 1])


def replayed(*parts: list[Json]) -> dict[str, ReplayedFile]:
    return replay_files(read([user("Go."), *(message for part in parts for message in part)]))


def ran(call_id: str, command: str, output: str = "") -> list[Json]:
    return answered(call_id, "shell", output, command=command)


def edited(call_id: str, path: str, old: str, new: str) -> list[Json]:
    return answered(call_id, "Edit", "ok", file_path=path, old_string=old, new_string=new)


def wrote(call_id: str, path: str, text: str) -> list[Json]:
    return answered(call_id, "Write", "ok", file_path=path, content=text)


def test_an_experiment_that_git_took_back_is_not_shown_as_the_last_edit() -> None:
    begun = answered("1", "Read", "     1\tone\n     2\ttwo\n", file_path="a.py")
    tried = edited("2", "a.py", "two", "2")
    for command in ("git checkout -- a.py", "git stash -q; pytest -q; git stash drop -q"):
        file = replayed(begun, tried, ran("3", command))["a.py"]
        assert (file.text, file.is_changed, file.touched) == ("one\ntwo\n", False, ())
    kept = replayed(begun, tried, ran("3", "git stash -q; pytest -q; git stash pop -q"))["a.py"]
    assert (kept.text, kept.is_sure, kept.edits) == ("one\n2\n", True, 1)


def test_what_git_puts_back_without_anybody_having_seen_it_is_not_told() -> None:
    file = replayed(wrote("1", "a.py", "mine\n"), ran("2", "git checkout -- a.py"))["a.py"]
    assert (file.text, "git put an earlier state back" in file.lost) == (None, True)


def test_a_commit_is_what_is_taken_back_to() -> None:
    files = replayed(
        wrote("1", "a.py", "one\n"),
        ran("2", "git add -A && git commit -qm one"),
        edited("3", "a.py", "one", "two"),
        ran("4", "git reset -q --hard"),
    )
    assert (files["a.py"].text, files["a.py"].is_sure) == ("one\n", True)


def test_a_file_that_was_renamed_is_known_by_its_new_name_alone() -> None:
    files = replayed(
        wrote("1", "old/a.py", "old = 1\n"),
        wrote("2", "old/b.py", "x = old\n"),
        ran("3", "git mv old new && git mv new/b.py new/c.py && sed -i 's/old/new/' new/*.py"),
    )
    assert {path for path, file in files.items() if not file.is_deleted} == {"new/a.py", "new/c.py"}
    assert (files["new/a.py"].text, files["new/c.py"].text) == ("new = 1\n", "x = new\n")


def test_the_commands_themselves_tell_whether_each_starts_in_the_same_folder() -> None:
    def files(*commands: str) -> dict[str, ReplayedFile]:
        runs = [answered(f"r{n}", "run", "", command=line) for n, line in enumerate(commands)]
        return replayed(wrote("1", "docs/a.md", "one\n"), *runs)

    anew = files("cd docs && ls", "cd docs && ls", "sed -i 's/one/two/' docs/a.md")
    assert (anew["docs/a.md"].text, anew["docs/a.md"].is_sure) == ("two\n", True)
    goes_on = files("cd docs && ls", "grep -c one a.md", "sed -i 's/one/two/' a.md")
    assert goes_on["docs/a.md"].text == "two\n"
    unknown = files("cd docs && ls", "sed -i 's/one/two/' *.md")
    assert not unknown["docs/a.md"].is_sure

"""The followed text of a file is exact, or marked as unsure."""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from context_compaction.activity.digest import digest
from context_compaction.activity.files import WORK_CHARS, follow_files
from context_compaction.activity.known_file import KnownFile
from context_compaction.messages import placeholders
from context_compaction.messages.model import Messages, make_message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.small import answered, read, user
from tests.support.working_folder import WorkingFolder

NAMES = ("a.py", "b.md", "c.txt")
# Few lines, so that many are equal. Some look like lines that tools add to a text.
LINES = st.sampled_from((
    "x = 1", "    y = 2", "", "def f():", "- [ ] task", "1: one", "2\ttwo", "return x", "  ",
    "… more lines", "[truncated]", "end",
))  # fmt: skip
TEXTS = st.lists(LINES, max_size=8).flatmap(
    lambda rows: st.sampled_from(["\n".join(rows), "".join(f"{row}\n" for row in rows)])
)
READERS = ("read_claude", "read_tabs", "read_opencode", "read_pi", "read_shell", "read_omp")
# These share a tool name, and a tool formats all files in one way.
READERS_OF_READ = ("read_opencode", "read_pi", "read_omp")
COMMANDS = (
    # These commands are followed.
    "cat > {0} <<'EOF'\nnew\ntext\nEOF", "cat >> {0} <<'EOF'\nadded\nEOF", "rm -f {0}",
    "head -n 2 {0}", "cat {0} | head -3", "sed -n 2,3p {0}", "nl -ba {0} | sed -n '1,2p'",
    "sed -n 1,2p {0}; sed -n 2,3p {1}", "cd . && head -1 {1} && sed -n 3p {0}", "ls; cat {0}",
    "mkdir -p sub && cd sub && cat > {0} <<E\nq\nE", "cat -n {0}", "tee {0} <<'E'\nt\nE",
    "tee {0} > {1} <<'E'\nt\nE", "cat > {0} <<'E' && cat {0}\nboth\nE",
    "cat > {0} <<'A'\none\nA\ncat > {1} <<'B'\ntwo\nB\nfalse", "cat > {0} <<-'E'\n\tq\n\tE",
    # These commands are not followed, or not certain to succeed.
    "cat {0} {1}", "wc -l {0}", "grep x {0}", "cat > {0} <<E\n$HOME\nE", "> {0}",
    "sed -i 's/x/z/' {0}", "sed -i '2,3d' {0} {1}", "echo more >> {0}", "mv {0} {1}", "cp {1} {0}",
    "sort -o {0} {0}", "for f in *.py *.md; do echo '#' >> $f; done", "tac {0} > {1}",
    "printf 'one\\ntwo\\n' > {0} && cat {0}", "truncate -s 3 {0}", "tee {0} < {1}",
    "python3 -c \"open('{0}', 'a').write('py')\"", "true || echo gone > {0}",
    "# a file's lines\nrm {0} # it isn't {1}", "echo '# it' a#b >> {0}",
    "grep -q task {0} && cat > {0} <<'E'\nnew\nE\ntrue", "false && rm {0}; true",
    "grep -q task {0} || cat > {0} <<'E'\nnew\nE", "f() {{ rm {0}; }}; ls",
    "if grep -q task {0}; then rm {1}; fi", "(cd / && rm -f {0}); cat {0}", "exit 0; rm {0}",
    "python3 - <<'E'\nt = open('{0}').read()\nopen('{1}', 'w').write(t + 'end')\nE",
    "awk 1 {0} > t && mv t {0}", "perl -pi -e 's/1/2/' {0}", "cat <<< hello > {0}",
    "rm *.md", "rm -rf ./{0} sub",
)  # fmt: skip


@st.composite
def work(draw: st.DrawFn) -> list[tuple[str, tuple[object, ...]]]:
    """Draw the steps of a session, each with its arguments."""
    names, size = st.sampled_from(NAMES), st.integers(1, 4)
    part = st.one_of(st.just((None, None)), st.tuples(st.integers(1, 6), size))

    def tool(name: str) -> str:
        return "read" if name in READERS_OF_READ else name

    readers = draw(st.lists(st.sampled_from(READERS), min_size=1, max_size=2, unique_by=tool))
    step = st.one_of(
        st.tuples(st.sampled_from(readers), st.tuples(names, part)),
        st.tuples(st.just("write"), st.tuples(names, TEXTS)),
        st.tuples(
            st.sampled_from(("edit", "edit_pi", "everywhere", "interrupted")),
            st.tuples(names, st.integers(0, 8), size, TEXTS, st.booleans()),
        ),
        st.tuples(st.just("patch"), st.tuples(names, st.integers(0, 8), size, TEXTS)),
        st.tuples(st.just("run"), st.tuples(st.sampled_from(COMMANDS), names, names)),
    )
    return draw(st.lists(step, min_size=6, max_size=16))


def do(folder: WorkingFolder, step: str, given: tuple[Any, ...]) -> None:
    name = str(given[0])
    if step.startswith("read_"):
        offset, limit = given[1]
        getattr(folder, step)(name, offset, limit)
    elif step == "run":
        folder.run(name.format(given[1], given[2]))
    elif step == "write":
        folder.write(name, given[1])
    else:
        at, size, text = given[1], given[2], given[3]
        rows = (folder.text(name) or "").splitlines(keepends=True)
        if step == "patch":
            lines = [row.rstrip("\n") for row in rows[at : at + size]]
            folder.patch(name, at, lines, text.splitlines())
            return
        old = "".join(rows[at : at + size])
        old = old.rstrip("\n") if given[4] else old
        if step == "everywhere":
            folder.edit(name, old, text, everywhere=True)
        else:
            getattr(folder, step)(name, old, text)


def check(files: dict[str, KnownFile], disk: dict[str, str], messages: Messages) -> None:
    """Check that every text that is not marked as unsure is the text on disk."""
    for path, file in files.items():
        what = f"{path} at {len(messages)}: {file}"
        if file.unsure_since is not None:
            continue
        if file.is_deleted:
            assert path not in disk, what
        if file.text is not None:
            # Not every tool shows whether the last line is ended.
            assert path in disk, what
            rows = disk[path].split("\n")
            known = "\n".join(rows[file.start_line - 1 : None if file.is_whole else file.stop_line])
            assert file.text.rstrip("\n") == known.rstrip("\n"), what


@settings(max_examples=25)
@given(
    steps=work(),
    texts=st.tuples(TEXTS, TEXTS),
    until=st.integers(0, 30),
    keeps_shell=st.booleans(),
)
def test_followed_text_is_the_text_on_disk_or_marked_unsure(
    steps: list[tuple[str, tuple[object, ...]]],
    texts: tuple[str, str],
    until: int,
    keeps_shell: bool,
) -> None:
    with tempfile.TemporaryDirectory() as top:
        shell = "Bash" if keeps_shell else "shell"
        files: dict[str, str] = dict(zip(NAMES, texts, strict=False))
        (Path(top) / ".git").mkdir()
        folder = WorkingFolder(Path(top), files, shell=shell, keeps_shell=keeps_shell)
        for step, arguments in steps:
            do(folder, step, arguments)
        messages = read(folder.payload)
        check(follow_files(messages), folder.states[-1], messages)
        at = min(until, len(messages) - 1)
        check(follow_files(messages[: at + 1]), folder.states[at], messages[: at + 1])


def followed(*parts: list[Json], path: str = "a.py") -> KnownFile:
    return follow_files(read([user("Go."), *(message for part in parts for message in part)]))[path]


WRITTEN = answered("w", "Write", "ok", file_path="a.py", content="one\ntwo\n")


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("Edit", {"file_path": "a.py", "old_string": "two", "new_string": "2\n3"}, "one\n2\n3\n"),
        ("edit", {"path": "a.py", "oldText": "two", "newText": "2"}, "one\n2\n"),
        ("edit_file", {"path": "a.py", "edits": [{"oldText": "one", "newText": "1"},
                                                 {"oldText": "two", "newText": "2"}]}, "1\n2\n"),
        ("Edit", {"file_path": "a.py", "old_string": "o", "new_string": "0", "replace_all": True},
         "0ne\ntw0\n"),
        ("str_replace_based_edit_tool",
         {"command": "str_replace", "path": "./a.py", "old_str": "two", "new_str": "2"},
         "one\n2\n"),
        ("apply_patch", {"input": "*** Begin Patch\n*** Update File: a.py\n@@\n one\n-two\n+2\n"
                                  "*** End Patch"}, "one\n2\n"),
        ("shell", {"command": ["apply_patch", "*** Begin Patch\n*** Update File: a.py\n@@\n-two\n"
                                              "+2\n*** End Patch"]}, "one\n2\n"),
    ],
)  # fmt: skip
def test_edit_is_applied_in_the_argument_names_of_each_host(
    name: str, arguments: dict[str, Any], text: str
) -> None:
    file = followed(WRITTEN, answered("1", name, "ok", **arguments))
    assert (file.text, file.unsure_since, file.was_written) == (text, None, True)


def test_parts_are_joined_when_they_touch() -> None:
    more = "\n\n... (2 more lines not shown. Use offset=3 to continue reading)"
    first = answered("1", "read", f"one\ntwo{more}", path="a.py", offset=1, limit=2)
    rest = answered("2", "read", "three\n", path="a.py", offset=3, limit=9)
    part, whole = followed(first), followed(first, rest)
    assert (part.text, part.is_whole) == ("one\ntwo", False)
    assert (whole.text, whole.is_whole) == ("one\ntwo\nthree\n", True)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("a.py", "def f():\n…\n\n[…90ln elided; re-read needed ranges with a.py:2-91]"),
        ("a.py:80-95", "def f():\n…\n    x = 1\n    return x"),
        ("a.py:90", "    return x"),
        ("a.py", "[Path 'b/a.py' not files; resolved to 'a.py' via suffix match]\nx = 1"),
        ("a.py", "x = 1\n[... omitted 144 of 400 lines ...]\n\n" + "return x\n" * 4),
        ("a.py", "[Old tool result cleared: Read, 9000 chars; "
                 "read_persisted_output o_0123456789abcdef01234567]"),
    ],
)  # fmt: skip
def test_read_shows_nothing_when_its_result_is_cut(path: str, shown: str) -> None:
    file = followed(answered("1", "read", shown, path=path))
    assert file.text is None


def test_failed_read_does_not_use_the_file() -> None:
    error = answered("1", "view", "Error: Path does not exist", path="a.py")
    assert follow_files(read([user("Look."), *error])) == {}


@pytest.mark.parametrize(
    "command",
    [
        "sed -i s/1/2/ a.py", "python fix.py > a.py", "python fix.py a.py", "uv run fix.py a.py",
        "python -m fixer a.py", "FAST=1 node fix.js --all ./a.py", "git checkout .", "git stash",
        "git reset --hard",
        "python -m black .", "npx prettier --write .", "ruff format", "npm run format",
        "python - <<'E'\nopen('a.py', 'w').write(str(1))\nE", "mv b.py a.py", "rm a*",
        "perl -pi -e 's/1/2/' *.py", "find . -name '*.py' -exec sed -i s/1/2/ {} +",
        "cd $SUB && sed -i '' 's/1/2/' ../a.py", "./tool a.py", "cat 'open quote > a.py",
        "git apply fix.patch", "f=$(ls); echo x > $f/a.py", "patch a.py < x.diff",
        "Set-Content a.py 'x'", "Remove-Item -Force a.py",
    ],
)  # fmt: skip
def test_text_is_unsure_when_a_command_may_have_changed_it(command: str) -> None:
    file = followed(WRITTEN, answered("1", "Bash", "", command=command))
    assert (file.text, file.unsure_since) == ("one\ntwo\n", 4)
    again = answered("2", "Read", "     1\tnew", file_path="a.py")
    file = followed(WRITTEN, answered("1", "Bash", "", command=command), again)
    assert (file.text, file.unsure_since) == ("new\n", None)


@pytest.mark.parametrize(
    "command",
    [
        "git status", "cat a.py | wc -l", "pytest -q a.py", "grep one a.py", "python a.py",
        "python -m pytest a.py", "uv run pytest a.py",
        'python serve.py > /dev/null 2> server.log & pid=$!\nkill $pid', "pip install -e .",
        "sed -i 's/two/see b.py./' PLAN.md && git add -A && git commit -qm 'fix: format'",
        "git stash list; git checkout -b next", "ssh build 'cd app && make' a.py",
        "# Does it read a.py?\ncurl -s http://api/h",
        "ls  # isn't a.py here", r"sed -i '1a\src' b.py", "gh pr view 1",
        "git commit -m \"$(cat <<'EOF'\nfix :) a.py > b\nEOF\n)\"", "black --check a.py",
        "Select-String -Path a.py -Pattern 'hooks'", "Get-Content a.py | ConvertFrom-Json",
    ],
)  # fmt: skip
def test_text_stays_sure_when_a_command_only_reads(command: str) -> None:
    file = followed(WRITTEN, answered("1", "Bash", "ok", command=command))
    assert file.unsure_since is None


@pytest.mark.parametrize(
    "later",
    [
        answered("1", "Edit", "updated", file_path="a.py", old_string="six", new_string="6"),
        answered("1", "Bash", "Checked 9 files in 12ms. Fixed 2 files.", command="git commit"),
    ],
)  # fmt: skip
def test_text_is_unsure_when_a_later_result_contradicts_it(later: list[Json]) -> None:
    assert followed(WRITTEN, later).unsure_since == 4


def test_lines_of_a_read_replace_the_text_when_they_contradict_it() -> None:
    later = answered("1", "Read", "     9\tnine", file_path="a.py", offset=9, limit=1)
    file = followed(WRITTEN, later)
    assert (file.text, file.start_line, file.unsure_since) == ("nine", 9, None)
    assert not file.is_whole


def test_text_is_unsure_when_the_host_notes_a_change() -> None:
    note = "<system-reminder>\nNote: a.py was modified, either by the user or by a linter.\n"
    assert followed(WRITTEN, [user(note)]).unsure_since == 3


def test_patch_leaves_the_text_of_a_moved_file_unknown() -> None:
    patch = "*** Begin Patch\n*** Update File: a.py\n*** Move to: b.py\n@@\n-two\n+2\n*** End Patch"
    done = answered("2", "apply_patch", "Success. Updated the following files:", input=patch)
    files = follow_files(read([user("Go."), *WRITTEN, *done]))
    assert files["b.py"].text is None
    assert files["a.py"].is_deleted


@pytest.mark.parametrize(
    ("lines", "text", "is_certain"),
    [
        ("@@\n-one\n+1\n@@\n-three\n", "1\ntwo\ntwo\n", True),
        ("@@\n-two\n-three\n\\ No newline at end of file\n", "one\ntwo\n", True),
        ("@@ one\n-two\n+2\n", "one\ntwo\ntwo\nthree\n", False),
        ("@@\n+four\n*** End of File\n", "one\ntwo\ntwo\nthree\n", False),
    ],
)
def test_patch_is_applied_when_each_of_its_hunks_occurs_once(
    lines: str, text: str, is_certain: bool
) -> None:
    written = answered("w", "Write", "ok", file_path="a.py", content="one\ntwo\ntwo\nthree\n")
    patch = f"*** Begin Patch\n*** Update File: a.py\n{lines}*** End Patch"
    file = followed(written, answered("1", "apply_patch", "Success.", input=patch))
    assert (file.text, file.unsure_since is None) == (text, is_certain)


TOP = "/home/me/w"


@pytest.mark.parametrize(
    ("shown", "path"),
    [
        ({"file_path": f"{TOP}/src/a.py"}, "patch of src/a.py"),
        ({"file_path": f"{TOP}/src/a.py"}, "./src/a.py"),
        ({"command": f"cd {TOP} && cat src/a.py"}, "src/a.py"),
        ({"command": f"cd {TOP}/src && cat a.py"}, f"{TOP}/src/a.py"),
        ({"command": "cd src && cat a.py"}, "src/a.py"),
        ({"command": "cd src && head -9 a.py"}, "src/a.py"),
        ({"cmd": "cat a.py", "workdir": f"{TOP}/src"}, f"{TOP}/src/a.py"),
        ({"command": "cd /d/w && cat src/a.py"}, r"D:\w\src\a.py"),
        ({"file_path": r"src\a.py"}, "src/a.py"),
        ({"file_path": r"C:\Users\Ann\a.py"}, "c:/users/ann/A.py"),
        ({"command": "cat /mnt/d/w/a.py"}, r"D:\w\a.py"),
    ],
)
def test_spellings_of_a_path_mean_a_single_file(shown: dict[str, Any], path: str) -> None:
    reader = "Read" if "file_path" in shown else "Bash"
    editor, arguments = "Edit", {"file_path": path, "old_string": "two", "new_string": "2"}
    if path.startswith("patch"):
        patch = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-two\n+2\n*** End Patch"
        editor, arguments = "apply_patch", {"input": patch}
    messages = read([
        user("Go."),
        *answered("1", reader, "one\ntwo\n", **shown),
        *answered("2", editor, "Success.", **arguments),
    ])
    [file] = follow_files(messages).values()
    assert (file.text, file.unsure_since) == ("one\n2\n", None)


@pytest.mark.parametrize("path", ["a.py", "unsure.md"])
@pytest.mark.parametrize("note", ["", " (text unsure since [4])"])
def test_restored_file_is_unsure_when_its_note_says_so(path: str, note: str) -> None:
    copy = f"File: {path}{note}\none\nEnd of file: {path}"
    [message] = read([user("x")])
    restored = make_message("user", placeholders.restored_files([copy]))
    file = follow_files((message, restored))[path]
    assert (file.text, file.unsure_since) == ("one", 1 if note else None)


# Work


def joined(parts: Iterable[list[Json]]) -> list[Json]:
    return [message for part in parts for message in part]


def many_edits(size: int) -> list[Json]:
    text = "".join(f"x{n}=1\n" for n in range(size))
    made = [
        answered(f"e{n}", "Edit", "ok", file_path="a.py", old_string=f"x{n}=1", new_string="y" * 9)
        for n in range(size)
    ]
    return [*answered("w", "Write", "ok", file_path="a.py", content=text), *joined(made)]


def many_parts(size: int) -> list[Json]:
    reads = [
        answered(f"r{n}", "Read", f"{n:6}\tx{n}\n", file_path="a.py", offset=n, limit=1)
        for n in range(1, size, 2)
    ]
    return joined(reads)


def growing_edits(size: int) -> list[Json]:
    edits = [{"old_string": "x", "new_string": "xx", "replace_all": True}] * min(size, 60)
    written = answered("w", "Write", "ok", file_path="a.py", content="x")
    return [*written, *answered("e", "MultiEdit", "ok", file_path="a.py", edits=edits)]


def marked_files(size: int) -> list[Json]:
    written = [
        answered(f"w{n}", "Write", "ok", file_path=f"{n}.py", content="x") for n in range(size)
    ]
    runs = [answered(f"r{n}", "Bash", "", command="git checkout .") for n in range(size)]
    return joined([*written, *runs])


def long_command(size: int) -> list[Json]:
    lines = "std::cout << value << std::endl; \\\n" * size
    commands = (f"cat > m.cpp <<\\EOF\n{lines}EOF", "((" * size, '"$(' * size, "a='\\''" * size)
    return joined(answered(str(n), "Bash", "", command=c) for n, c in enumerate(commands))


def shown_minified(size: int) -> list[Json]:
    text = "!function(e,t){sourceMap.version};" * size
    sed = answered("s", "Bash", "", command="sed -i 's/.*sourceMap.*version.*//' a.min.js")
    return [*answered("r", "Read", f"     1\t{text}", file_path="a.min.js"), *sed]


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        ("ls", {"a.py": ["a.py"], "/w/lib/a.py": ["/w/lib/a.py"]}),
        ("cd /w && ls", {"a.py": ["a.py"], "/w/lib/a.py": ["/w/lib/a.py"]}),
        ("cd /w/lib && ls", {"a.py": ["a.py", "/w/lib/a.py"]}),
        ("cd /w/lib && ls; cd /w", {"a.py": ["a.py"], "/w/lib/a.py": ["/w/lib/a.py"]}),
    ],
)
def test_two_spellings_mean_a_single_file_when_the_working_folder_is_known(
    command: str, paths: dict[str, list[str]]
) -> None:
    calls = (
        answered("c", "Bash", "ok", command=command),
        answered("r", "Read", "1", file_path="a.py"),
        answered("s", "Read", "2", file_path="/w/lib/a.py"),
    )
    files = follow_files(read([user("Go."), *joined(calls)]))
    assert {file.path: file.names for file in files.values()} == paths


SHAPES = (many_edits, many_parts, growing_edits, marked_files, long_command,
          shown_minified)  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_texts_are_unsure_when_the_budget_is_spent(shape: Any) -> None:
    messages = read([user("Go."), *shape(200)])
    complete = follow_files(messages)
    small = follow_files(messages, work_chars=300)
    for path, file in small.items():
        known = complete.get(path)
        is_same = known is not None and file.text == known.text
        assert is_same or file.unsure_since is not None or not file.text, path
    assert sum(len(file.text or "") for file in small.values()) <= 300


KEYS = st.sampled_from((
    "path", "file_path", "command", "cmd", "content", "old_string", "new_string", "edits", "diff",
    "input", "insert_line", "offset", "limit", "view_range", "workdir", "replace_all", "patch", "",
))  # fmt: skip
ARGUMENTS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20),
              st.sampled_from(("a.py", "*** Begin Patch\n*** Update File: a\n@@\n-x\n*** End Patch",
                               "cat <<E > a.py", "cd .. && cat a.py", "sed -n 1,2p a", "a.py:1-2",
                               "--- a\n+++ b\n@@\n-x\n+y", "rm *", "<<<<<<< SEARCH\nx\n=======\n",
                               "     1\tx\n     2\ty", "$(", "`", "Exit code 1\nOutput:\nx"))),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=8,
)  # fmt: skip
TOOLS = st.sampled_from((
    "Read", "Write", "Edit", "MultiEdit", "Bash", "exec", "apply_patch", "view", "insert",
    "str_replace_based_edit_tool", "notebook_edit", "", "append_file", "mcp__fs__read_file",
))  # fmt: skip


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    calls=st.lists(
        st.tuples(TOOLS, st.one_of(st.dictionaries(KEYS, ARGUMENTS, max_size=5), ARGUMENTS),
                  st.one_of(st.text(max_size=30), ARGUMENTS.filter(lambda a: isinstance(a, str)))),
        max_size=6,
    )
)  # fmt: skip
def test_follow_files_never_raises_or_logs_an_error(
    calls: list[tuple[str, Any, str]], caplog: pytest.LogCaptureFixture
) -> None:
    from context_compaction.messages.model import Message, Text, ToolCall, ToolResult

    messages: list[Message] = []
    for n, (name, arguments, answer) in enumerate(calls):
        messages.append(Message("assistant", (ToolCall(str(n), name, arguments),)))
        messages.append(Message("user", (ToolResult(str(n), (Text(answer),)),)))
    caplog.clear()
    follow_files(tuple(messages), work_chars=WORK_CHARS)
    digest(tuple(messages))
    assert not caplog.records  # no error was caught and logged

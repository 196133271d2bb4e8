"""Files as the calls leave them: replayed exactly, or said not to be known."""

import tempfile
from pathlib import Path
from time import process_time

import pytest
from context_compaction.activity.documents import filed_in
from context_compaction.activity.file_changes import Writes
from context_compaction.activity.file_commands import command_effects
from context_compaction.activity.file_replay import replay_files
from context_compaction.activity.program_effects import MayChange
from context_compaction.activity.replayed_file import ReplayedFile
from context_compaction.messages import placeholders
from context_compaction.messages.model import Messages, make_message
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.small import answered, read, user
from tests.support.working_folder import WorkingFolder

NAMES = ("a.py", "b.md", "c.txt")
# Few lines, so that many are alike; and some that look like what tools put around a text.
LINES = st.sampled_from((
    "x = 1", "    y = 2", "", "def f():", "- [ ] task", "1: one", "2\ttwo", "return x", "  ",
    "… more lines", "[truncated]", "end",
))  # fmt: skip
TEXTS = st.lists(LINES, max_size=8).flatmap(
    lambda rows: st.sampled_from(["\n".join(rows), "".join(f"{row}\n" for row in rows)])
)
READERS = ("read_claude", "read_tabs", "read_opencode", "read_pi", "read_shell", "read_omp")
# A tool shows all files in one way.
READERS_OF_READ = ("read_opencode", "read_pi", "read_omp")
COMMANDS = (
    "sed -i 's/x/z/' {0}", "echo more >> {0}", "cat > {0} <<'EOF'\nnew\ntext\nEOF",
    "cat >> {0} <<'EOF'\nadded\nEOF", "rm -f {0}", "mv {0} {1}", "cp {1} {0}", "wc -l {0}",
    "head -n 2 {0}", "cat {0} | head -3", "sed -n 2,3p {0}", "cat {0} {1}", "grep x {0}",
    "sort -o {0} {0}", "for f in *.py *.md; do echo '#' >> $f; done", "tac {0} > {1}",
    "printf 'one\\ntwo\\n' > {0} && cat {0}", "ls; cat {0}",
    "mkdir -p sub && cd sub && cat > {0} <<E\nq\nE",
    "truncate -s 3 {0}", "python3 -c \"open('{0}', 'a').write('py')\"", "tee {0} < {1}",
    "sed -i 's/^x = \\(.\\)$/x = [\\1]/; /return/d' {0}",
    "sed -i 's/[ ]*task$/&, done/g' {0} {1}",
    "sed -i 's|2.*o|a/b|' {0}; grep -q nothing {0}", "sed -i '/def/s/f/\\n&*/' {0} && cat {0}",
    "sed -i '2,3d' {0}", "sed -i '$d; 1s/x/y/' {0}", "sed -i '/def/,/end/ s/x/Z/g' {0} {1}",
    "sed -i '/x/,2s/ /_/; 3,/task/d' {0}", "sed -i '/return/,$ s/x/r/' {0}; cat {0}",
    "sed -i '2,1s/e/E/' {0}", "# a file's lines\nrm {0} # it isn't {1}", "echo '# it' a#b >> {0}",
    "false && sed -i 's/x/z/' {0}; true", "grep -q task {0} && sed -i 's/x/z/' {0}; true",
    "true || echo gone > {0}",
    "grep -q task {0} || cat > {0} <<'E'\nnew\nE",
    "f() {{ rm {0}; }}; ls",
    "if grep -q task {0}; then sed -i 's/x/z/' {0}; rm {1}; fi", "mv {0} {1}; sed -i 's/x/z/' {1}",
    "python3 - <<'E'\np = '{0}'; s = open(p).read()\ns = s.replace('x = 1', 'x = 3\\n')\n"
    "open(p, 'w').write(s)\nE",
    "python3 - <<'E'\nfrom pathlib import Path\np = Path('{0}'); t = p.read_text()\n"
    "at = t.index('return')\np.write_text(t[:at] + 'more ' + t[at:].rstrip() + '\\n')\nE",
    "python3 - <<'E'\nt = open('{0}').read()\nassert t.count('task') == 1\n"
    "open('{1}', 'w').write(t.replace('task', 'T', 1))\nE",
    "python3 -c \"t = open('{0}').read(); open('{0}', 'w').write(t + 'end')\"",
    "python3 - <<'E'\nfor p in ('{0}', '{1}'):\n    t = open(p).read()\n"
    "    with open(p, 'w') as f:\n        f.write(t.replace('x', 'xx') + '!')\nE",
    "python3 - <<'E'\nt = open('{0}').read()\nfor old, new in (('x', 'w'), ('end', 'END')):\n"
    "    assert old in t, old\n    t = t.replace(old, new)\nopen('{0}', 'w').write(t)\nE",
    "python3 - <<'E'\nimport json\na, b = open('{0}').read(), open('{1}').read()\n"
    "f = open('{0}', 'w'); f.write(b); f.write(a); f.close()\n"
    "with open('{1}', 'w') as f: json.dump(a, f)\nE",
    "python3 - <<'E'\nt = open('{0}').read()\ndef once(a, b):\n    global t\n"
    "    t = t.replace(a, b)\nonce('x', 'y')\nopen('{0}', 'w').write(t)\nE",
    "python3 - <<'E'\nt = open('{0}').read()\nif 'x' in t: raise SystemExit\n"
    "open('{0}', 'w').write('none')\nE",
    "python3 - <<'E'\nt = open('{0}').read()\nwith open('{1}', 'a') as f: print(t, file=f)\nE",
    "python3 - <<'E'\nt = open('{0}').read()\nif 'x' in t:\n    t = t.replace('x', 'y')\n"
    "    open('{0}', 'w').write(t)\nelse:\n    open('{1}', 'w').write(t)\nE",
    "cat > do.py <<'E'\nimport sys\nt = open('{0}').read()\nif 'end' in t: sys.exit()\n"
    "open('{0}', 'w').write(t + 'end')\nE\npython3 do.py",
    "cat > do.py <<'E'\nt = open('{0}').read()\nt = t.replace('task', 'done')\n"
    "open('{0}', 'w').write(t)\nE\npython3 do.py && cat {0}",
    "awk 1 {0} > t && mv t {0}", "perl -pi -e 's/1/2/' {0}", "cat <<< hello > {0}", "nl -ba {0}",
    "sed -n 1,2p {0}; sed -n 2,3p {1}", "cd . && head -1 {1} && sed -n 3p {0}",
)  # fmt: skip


@st.composite
def work(draw: st.DrawFn) -> list[tuple[str, tuple[object, ...]]]:
    """Steps of a session: what is done, and to what."""
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


def do(folder: WorkingFolder, step: str, given: tuple[object, ...]) -> None:
    name = str(given[0])
    if step.startswith("read_"):
        offset, limit = given[1]  # type: ignore[misc]
        getattr(folder, step)(name, offset, limit)
    elif step == "run":
        folder.run(str(given[0]).format(given[1], given[2]))
    elif step == "write":
        folder.write(name, str(given[1]))
    else:
        at, size, text = int(given[1]), int(given[2]), str(given[3])  # type: ignore[call-overload]
        rows = (folder.text(name) or "").splitlines(keepends=True)
        old = "".join(rows[at : at + size])
        if step == "patch":
            lines = [row.rstrip("\n") for row in rows[at : at + size]]
            folder.patch(name, at, lines, text.splitlines())
            return
        old = old.rstrip("\n") if given[4] else old
        if step == "everywhere":
            folder.edit(name, old, text, everywhere=True)
        else:
            getattr(folder, step)(name, old, text)


def check(found: dict[str, ReplayedFile], disk: dict[str, str], messages: Messages) -> None:
    for path, file in found.items():
        if "/" in path:
            continue
        what = f"{path} at {len(messages)}: {file}"
        if file.is_sure and file.text is not None:
            # Whether a last line is ended, not every tool shows.
            assert path in disk, what
            assert file.text.rstrip("\n") == disk[path].rstrip("\n"), what
        if file.is_sure and file.is_deleted:
            assert path not in disk, what
        if file.is_sure and file.parts:
            rows = disk[path].split("\n")
            for part in file.parts:
                if part.is_moved:
                    assert f"\n{part.text}\n" in f"\n{disk[path]}\n", what
                    continue
                there = rows[part.start_line - 1 : part.stop_line]
                assert "\n".join(there).rstrip("\n") == part.text.rstrip("\n"), what
        for left in file.loose if file.is_sure else ():
            assert "\n" * left.begins + left.text in f"\n{disk[path]}", what


@settings(max_examples=60)
@given(steps=work(), texts=st.tuples(TEXTS, TEXTS), until=st.integers(0, 30))
def test_replaying_gives_the_file_or_says_that_it_does_not_know(
    steps: list[tuple[str, tuple[object, ...]]], texts: tuple[str, str], until: int
) -> None:
    with tempfile.TemporaryDirectory() as top:
        folder = WorkingFolder(Path(top), dict(zip(NAMES, texts, strict=False)))
        for step, given_ in steps:
            do(folder, step, given_)
        messages = read(folder.payload)
        check(replay_files(messages), folder.states[-1], messages)
        at = min(until, len(messages) - 1)
        check(replay_files(messages, until=at), folder.states[at], messages[: at + 1])


def replayed(*parts: list[Json], path: str = "a.py") -> ReplayedFile:
    return replay_files(read([user("Go."), *(message for part in parts for message in part)]))[path]


def test_an_edit_after_a_read_gives_the_file_with_what_was_edited_last() -> None:
    file = replayed(
        answered("1", "Read", "     1\tone\n     2\ttwo\n", file_path="a.py"),
        answered("2", "Edit", "updated", file_path="a.py", old_string="two", new_string="2\n3"),
    )
    assert (file.text, file.is_sure, file.edits) == ("one\n2\n3\n", True, 1)
    assert (file.seen_at, file.changed_at, file.touched) == (2, 4, ((2, 3),))


def test_reads_in_parts_are_joined_once_they_meet() -> None:
    more = "\n\n... (2 more lines not shown. Use offset=3 to continue reading)"
    first = answered("1", "read", f"one\ntwo{more}", path="a.py", offset=1, limit=2)
    rest = answered("2", "read", "three\n", path="a.py", offset=3, limit=9)
    assert replayed(first).text is None
    assert [(p.start_line, p.text) for p in replayed(first).parts] == [(1, "one\ntwo")]
    assert replayed(first, rest).text == "one\ntwo\nthree\n"


def test_lines_that_are_named_behind_a_path_are_lines_of_that_file() -> None:
    file = replayed(
        answered("1", "read", "one\ntwo\nthree\nfour", path="a.py:1-4"),
        answered("2", "read", "two\nthree\nfour", path="./a.py:3-4"),
        answered("3", "edit", "ok", path="a.py", oldText="three", newText="3"),
    )
    assert [(p.start_line, p.text) for p in file.parts] == [(1, "one\ntwo\n3\nfour")]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("cat a.py | head -3", "cat: a.py: No such file or directory\n"),
        ("head -n 2 a.py", "head: cannot open 'a.py' for reading: Permission denied\n"),
        ("sed -n 1,9p a.py", "sed: couldn't read a.py: Is a directory\n"),
    ],
)
def test_what_a_program_says_of_a_file_that_it_cannot_read_is_not_its_text(
    command: str, said: str
) -> None:
    file = replayed(answered("1", "Bash", said, command=command))
    assert (file.text, file.parts) == (None, ())


def test_a_read_that_failed_is_no_use_of_the_file() -> None:
    said = answered("1", "view", "Error: Path does not exist", path="a.py")
    assert replay_files(read([user("Look."), *said])) == {}


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("a.py", "def f():\n…\n\n[…90ln elided; re-read needed ranges with a.py:2-91]"),
        ("a.py", "def f(): { … }\n\n[…9ln elided; re-read needed ranges, e.g. a.py:2-5,9-13]"),
        ("a.py:80-95", "def f():\n…\n    x = 1\n    return x"),
        ("a.py:80-95", "    x = 1\n    return x"),
        ("a.py:5-6,80-95", "    x = 1\n…\n    return x"),
        ("a.py:90", "    return x"),
        ("a.py", "[Path 'b/a.py' not found; resolved to 'a.py' via suffix match]\nx = 1"),
        ("a.py", "x = 1\n[... omitted 144 of 400 lines ...]\n\nreturn x"),
    ],
)
def test_a_view_that_leaves_lines_out_is_not_taken_for_the_file(path: str, shown: str) -> None:
    file = replayed(answered("1", "read", shown, path=path))
    assert (file.text, file.parts) == (None, ())


def test_a_text_added_after_numbered_lines_is_taken_to_begin_a_line_until_it_is_seen() -> None:
    parts = [
        answered("1", "Read", "     1\tone\n     2\ttwo", file_path="a.py"),
        answered("2", "Bash", "", command="cat >> a.py <<'E'\n3\nE"),
    ]
    file = replayed(*parts)
    assert (file.text, file.is_sure, file.doubt and file.doubt.at) == ("one\ntwo\n3\n", False, 4)
    edit = answered("3", "Edit", "ok", file_path="a.py", old_string="two\n3", new_string="2\n3")
    found = replayed(*parts, edit)
    assert (found.text, found.is_sure, found.doubt) == ("one\n2\n3\n", False, None)


def test_an_old_text_that_is_not_there_ends_what_is_known_and_says_since_when() -> None:
    file = replayed(
        answered("1", "Write", "ok", file_path="a.py", content="one\n"),
        answered("2", "Edit", "updated", file_path="a.py", old_string="two", new_string="2"),
    )
    assert (file.text, file.lost_at) == (None, 4)
    assert "old text of an edit" in file.lost


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("npx @biomejs/codemod --write .", ""),
        ("python -m black .", ""),
        ("git commit -m done", "Checked 9 files in 12ms. Fixed 2 files."),
        ("cd $SUB && sed -i '' 's/1/2/' ../a.py", ""),
        ("python3 - <<'E'\nopen('a.py', 'w').write(str(1))\nE", ""),
    ],
)
def test_what_a_command_may_have_changed_is_given_with_a_doubt(command: str, output: str) -> None:
    written = answered("1", "Write", "ok", file_path="a.py", content="one\n")
    file = replayed(written, answered("2", "Bash", output, command=command))
    assert (file.text, file.is_sure) == ("one\n", False)
    assert file.doubt is not None
    assert file.doubt.at == 4
    assert command.removeprefix("cd $SUB && ").split()[0] in file.doubt.reason


FORMATTERS = {
    "cargo fmt": "lib.rs", "cargo +nightly fmt && cargo clippy --fix": "lib.rs",
    "gofmt -w .": "main.go", "go fmt ./...": "main.go", "uv run ruff format": "a.py",
    "ruff check --fix .": "a.py", "python -m black src": "a.py", "npx prettier --write .": "a.ts",
    "pnpm eslint --fix": "a.ts", "npx biome format --write": "a.ts",
}  # fmt: skip


@given(command=st.sampled_from(sorted(FORMATTERS)))
def test_a_formatter_is_held_to_touch_files_of_its_language_alone(command: str) -> None:
    paths = [*set(FORMATTERS.values()), "NOTES.txt", "Makefile", "data.sql"]
    messages = [user("Go.")]
    for path in paths:
        messages += answered(path, "Write", "ok", file_path=path, content="one\n")
    files = replay_files(read([*messages, *answered("f", "Bash", "", command=command)]))
    doubted = {path for path, file in files.items() if file.doubt}
    assert doubted == {FORMATTERS[command]}
    # What is laid out anew says what it said.
    assert not any(file.may_be_stale for file in files.values())


@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "cat a.py | wc -l",
        "pytest -q",
        "grep one a.py",
        'python serve.py > /dev/null 2> server.log & pid=$!\nc() { curl -s "$@"; }\nkill $pid',
        "pip install -e .",
        "python -m tool convert library --format json",
        "sed -i 's/two/see b.py./' PLAN.md && git add -A && git commit -qm 'fix: format'",
        "git worktree list; git stash list; git checkout -b next",
        "for i in 1 2; do timeout 9 python -m pytest -q b.py; done",
        "for i in a b; do curl -s -S -w '%{http_code}' -o /dev/null \"$U/$i\"; done",
        "./read.sh https://a.example/docs/a.py | head -50",
        "ssh build 'cd app && make' a.py",
        "shellcheck a.py",
        "git stash -q; git checkout -q 0cfd5b3; wc -l *; git checkout -q fork; git stash pop -q",
        "git apply --cached ../hunk.patch && git diff --cached --stat",
        'out=$(mktemp) && pytest -q b.py > "$out" && python - "$out" < t.py; rm -f "$out"',
        "tmp=$(mktemp).md\ncat > \"$tmp\" <<'EOF'\na.py\nEOF\nworkmux send -f $tmp",
        "# Does it read the API's a.py?\n# Ask the port's health\ncurl -s http://api/h | jq .",
        "ls  # isn't a.py here",
        'd="$(mktemp -d)"; sort c.txt > "$d/x.txt"; tar xf c.tgz -C ${d}; mv "$d/x.txt" c.txt',
    ],
)
def test_what_only_looks_leaves_no_doubt(command: str) -> None:
    written = answered("1", "Write", "ok", file_path="a.py", content="one\n")
    assert replayed(written, answered("2", "Bash", "", command=command)).is_sure


PLAN = "# Plan\n\n1. [ ] Atomic writes, opt-in.\n2. [ ] Backups (keep=5)\n"


@pytest.mark.parametrize(
    ("command", "changed"),
    [
        ("sed -i 's/^1\\. \\[ \\] At.*/1. [x] `write(atomic=True)`/' P.md && pytest -q; git log",
         PLAN.replace("1. [ ] Atomic writes, opt-in.", "1. [x] `write(atomic=True)`")),
        ("sed -i 's/keep=5)/keep=8)/; s/^2\\. \\[ \\]/2. [~]/' P.md",
         PLAN.replace("2. [ ] Backups (keep=5)", "2. [~] Backups (keep=8)")),
        ('sed -i "/^2\\. .*(keep=5)\\$/d; s/\\(Atomic\\|Torn\\) writes/It\'s \\$ 5/" P.md',
         "# Plan\n\n1. [ ] It's $ 5, opt-in.\n"),
        ("python - <<'E'\np='P.md'; s=open(p).read()\ns=s.replace('1. [ ]','1. [x]')\n"
         "open(p,'w').write(s)\nE\ngit add -A && git commit -qm done",
         PLAN.replace("1. [ ]", "1. [x]")),
        ("python - <<'E'\ndef sub(p, *pairs):\n    t = open(p).read()\n    for a, b in pairs:\n"
         "        assert t.count(a) == 1, (p, a)\n        t = t.replace(a, b)\n"
         "    open(p, 'w').write(t)\nsub('P.md', ('1. [ ]', '1. [x]'), ('keep=5', 'keep=8'))\n"
         "E\ngit commit -qam done",
         PLAN.replace("1. [ ]", "1. [x]").replace("keep=5", "keep=8")),
        ("cat > /tmp/fix.py <<'E'\nfrom pathlib import Path\np = Path('P.md'); t = p.read_text()\n"
         "old = '(keep=5)'\nif old in t:\n    p.write_text(t.replace(old, '(keep=8)'))\n"
         "else:\n    print('not found')\nE\npython3 /tmp/fix.py",
         PLAN.replace("keep=5", "keep=8")),
        ("python - <<'E'\nimport pathlib\np = pathlib.Path('P.md'); t = p.read_text()\n"
         "i = t.index('2. ')\np.write_text(t[:i] + '''1b. new\n''' + t[i:])\nE",
         PLAN.replace("2. [", "1b. new\n2. [")),
    ],
)  # fmt: skip
def test_an_edit_that_a_command_spells_out_is_replayed(command: str, changed: str) -> None:
    written = answered("1", "Write", "ok", file_path="/home/me/app/P.md", content=PLAN)
    other = answered("2", "Write", "ok", file_path="/home/me/app/a.py", content="x")
    done = answered("3", "Bash", "1 failed", command=command)
    file = replayed(written, other, done, path="/home/me/app/P.md")
    assert (file.text, file.is_sure, file.edits) == (changed, True, 1)


@pytest.mark.parametrize(
    "command",
    [
        "sed -i -E 's/(a|b)+/c/' P.md",
        "t=$(mktemp); sort P.md > $t && mv $t P.md",
        "f=$(ls *.md); echo x >> $f",
        "git apply fix.patch",
        'sed -i "s/Plan/$NAME/" P.md',
        "mv P.md releases/1.2; sed -i 's/Plan/Map/' releases/1.2",
        "grep -q x P.md && sed -i 's/Plan/Map/' P.md; true",
        "python - <<'E'\ns=open('P.md').read()\nfor a in 'xy': s=s.replace(a,'')\n"
        "open('P.md','w').write(s)\nE",
        "python - <<'E'\ns=open('P.md').read().replace('no','')\nopen('P.md','w').write(s)\nE",
    ],
)
def test_one_that_it_does_not_is_a_doubt(command: str) -> None:
    written = answered("1", "Write", "ok", file_path="P.md", content=PLAN)
    file = replayed(written, answered("2", "Bash", "", command=command), path="P.md")
    assert (file.text, file.is_sure) == (PLAN, False)


def test_a_copy_under_another_ending_puts_a_file_back() -> None:
    written = answered("1", "Write", "ok", file_path="a.py", content="one\n")
    tried = "cp a.py ../a.keep && sed -i 's/one/1/' a.py && pytest -q; cp ../a.keep a.py"
    file = replayed(written, answered("2", "Bash", "1 failed", command=tried))
    assert (file.text, file.is_sure) == ("one\n", True)


def test_a_folder_that_is_moved_takes_its_files_with_it() -> None:
    written = answered("1", "Write", "ok", file_path="old/a.py", content="x = 1\n")
    moved = answered("2", "Bash", "", command="git mv old new && sed -i 's/1/2/' new/a.py")
    assert replayed(written, moved, path="new/a.py").text == "x = 2\n"
    assert replayed(written, moved, path="old/a.py").is_deleted


def test_a_file_is_told_as_of_any_message() -> None:
    messages = read([
        user("Go."),
        *answered("1", "Write", "ok", file_path="a.py", content="one\n"),
        *answered("2", "Write", "ok", file_path="a.py", content="two\n"),
    ])
    assert replay_files(messages, until=2)["a.py"].text == "one\n"
    assert replay_files(messages)["a.py"].text == "two\n"
    assert replay_files(messages, until=1) == {}


def test_a_note_of_the_host_that_somebody_else_changed_the_file_is_a_doubt() -> None:
    note = "<system-reminder>\nNote: a.py was modified, either by the user or by a linter.\n"
    written = answered("1", "Write", "ok", file_path="a.py", content="one\n")
    assert not replayed(written, [user(note)]).is_sure


def test_several_edits_in_one_call_are_all_replayed() -> None:
    edits = [{"oldText": "one", "newText": "1"}, {"oldText": "two", "newText": "2"}]
    file = replayed(
        answered("1", "Write", "ok", file_path="a.py", content="one\ntwo\n"),
        answered("2", "edit", "Successfully replaced", path="a.py", edits=edits),
    )
    assert (file.text, file.edits) == ("1\n2\n", 2)


def test_a_patch_finds_its_lines_and_may_move_the_file() -> None:
    patch = (
        "*** Begin Patch\n*** Update File: a.py\n*** Move to: b.py\n@@ def g():\n"
        "-    return 1\n+    return 2\n*** End Patch"
    )
    text = "def f():\n    return 1\ndef g():\n    return 1\n"
    files = replay_files(
        read([
            user("Go."),
            *answered("1", "Write", "ok", file_path="a.py", content=text),
            *answered("2", "apply_patch", "Success. Updated the following files:", input=patch),
        ])
    )
    assert files["b.py"].text == "def f():\n    return 1\ndef g():\n    return 2\n"
    assert files["a.py"].is_deleted


@given(short=st.lists(st.booleans(), min_size=4, max_size=4))
def test_a_file_is_one_whether_calls_name_it_from_the_top_of_the_work_or_from_the_root(
    short: list[bool],
) -> None:
    """As hosts do whose patches name files from the top, and all else from the root."""
    top = "/home/me/work/"
    names = ("src/a.py", "ui/src/b.ts", "docs/d.md", "src/new/c.py")
    calls = [
        message
        for number, name in enumerate(names[:3])
        for message in answered(f"r{number}", "read", "one\ntwo\n", filePath=top + name)
    ]
    for number, (name, is_short) in enumerate(zip(names, short, strict=True)):
        change = "Add File: {}\n+new" if number == 3 else "Update File: {}\n@@\n-two\n+2"
        patch = change.format(name if is_short else top + name)
        text = f"*** Begin Patch\n*** {patch}\n*** End Patch"
        calls += answered(f"p{number}", "apply_patch", "Success.", patchText=text)
    files = replay_files(read([user("Go."), *calls]))
    assert {path: file.text for path, file in files.items()} == {
        **{top + name: "one\n2\n" for name in names[:3]},
        top + names[3]: "new\n",
    }


def test_a_patch_of_several_files_that_was_refused_has_changed_none() -> None:
    patch = (
        "*** Begin Patch\n*** Update File: a.py\n@@\n-one\n+two\n"
        "*** Update File: b.py\n@@\n-no\n+yes\n*** End Patch"
    )
    said = (
        '{"output": "error: Failed to find expected lines in b.py", "metadata": {"exit_code": 1}}'
    )
    file = replayed(
        answered("1", "Write", "ok", file_path="a.py", content="one\n"),
        answered("2", "apply_patch", said, input=patch),
    )
    assert (file.text, file.is_sure) == ("one\n", True)


def test_of_a_text_that_was_lost_the_last_whole_one_is_told_with_what_is_not_in_it() -> None:
    file = replayed(
        answered("1", "Write", "ok", file_path="a.py", content="one\ntwo\n"),
        answered("2", "Edit", "updated", file_path="a.py", old_string="six", new_string="6"),
        answered("3", "Edit", "updated", file_path="a.py", old_string="two", new_string="2"),
    )
    assert (file.text, file.last_text, file.missed) == (None, "one\n2\n", (4,))


@pytest.mark.parametrize("path", ["a.py", "unsure.md"])
@pytest.mark.parametrize("note", ["", " (unsure since [4]: perhaps changed by git checkout v1)"])
def test_a_file_that_was_put_back_is_as_sure_as_its_note_says(path: str, note: str) -> None:
    copy = f"File: {path}{note}\none\nEnd of file: {path}"
    [message] = read([user("x")])
    restored = make_message("user", placeholders.restored_files([copy]))
    file = replay_files((message, restored))[path]
    assert (file.text, file.is_sure) == ("one", not note)


def test_a_result_that_a_compaction_has_cleared_shows_nothing() -> None:
    cleared = (
        "[Old tool result cleared: Read, 9000 chars; "
        "read_persisted_output o_0123456789abcdef01234567]"
    )
    assert replayed(answered("1", "Read", cleared, file_path="a.py")).text is None


@pytest.mark.parametrize(
    ("command", "is_sure"),
    [
        ("Select-String -Path a.py -Pattern 'hooks' | Write-Host", True),
        ("Get-Content a.py | ConvertFrom-Json | Select-Object -First 1", True),
        ("$r = Invoke-Pester -Path tests; $r.Failed | ForEach-Object { $_.ExpandedPath }", True),
        ("$t = Get-Content a.py -Raw 2>$null; $t.Length; if ($t) { $t | % { $_.Trim() } }", True),
        ("Get-ChildItem *.py | Where-Object { $_.Length -gt 10 } | Format-Table", True),
        ("Copy-Item a.py b.py; $a -replace 'x', 'y'", True),
        ("gh pr create --body-file a.py", True),
        ("corepack pnpm exec vitest run a.py; mise x node@22 -- shellcheck a.py", True),
        ("git checkout -b more; git switch -c other", True),
        ("Get-ChildItem | ForEach-Object { Set-Content $_ 'x' }", False),
        ("Get-ChildItem | ForEach-Object { $_.Delete() }", False),
        ("[IO.File]::WriteAllText($path, 'x')", False),
        ("$image.Save('a.py')", False),
        ('$image.Save("$env:TEMP\\b.png")', True),
        ("gh api repos/a/b/branches/fix/x", True),
        ("Copy-Item b.py $target", False),
        ("$RUN a.py", False),
        ("gh pr checkout 12", False),
        ("git checkout -b more -t origin/main", False),
        ("git switch -c other origin/main", False),
        ("Set-Content a.py '{}'", False),
        ("Format-All a.py; Update-Config a.py", False),
        ("Get-ChildItem | Remove-Item", False),
        ("set-content $p 'x'", False),
        ("Set-Content -Value 'x' -Path:a.py", False),
        ("Set-Content b.py 'x' -Encoding:utf8 -Force:$true", True),
        ("Copy-Item -Path:a.py -Destination:b.py", True),
        ("Rename-Item b.py -NewName:a.py", False),
        ("if (Test-Path a.py) { Remove-Item a.py }", False),
        ("Get-ChildItem src\\*.py", True),
        ("sort-package-json a.py", False),
    ],
)
def test_a_command_that_only_reads_puts_no_file_in_doubt(command: str, is_sure: bool) -> None:
    file = replayed(
        answered("1", "create", "Created file", path="a.py", file_text="x = 1\n"),
        answered("2", "powershell", "", command=command),
    )
    assert file.is_sure is is_sure


@pytest.mark.parametrize(
    "command",
    [
        r"Set-Content src\a.py 'x'",
        r"Set-Content 'src\a.py' 'x'",
        r"Set-Content -LiteralPath:src\a.py -Value 'x'",
        r"Set-Content D:\w\src\a.py 'x'",
        r"Get-Content b.py | Out-File .\src\a.py",
        r"echo x > src\a.py",
        r"copy b.py src\a.py",
        r"Remove-Item src\*.py",
        r"Remove-Item -Recurse .\src\ -Force",
        "Remove-Item -Recurse -Force src",
        "Move-Item src lib",
        r"rm src\a.py",
    ],
)
def test_a_command_on_windows_reaches_the_file_that_it_names(command: str) -> None:
    """Shells of other systems would take the backslashes away."""
    messages: list[Json] = [
        user("Go."),
        *answered("1", "create", "Created file", path="src/a.py", file_text="x = 1\n"),
        *answered("2", "powershell", "", command=command),
    ]
    file = replay_files(read(messages))["src/a.py"]
    assert not file.is_sure or file.is_deleted


@pytest.mark.parametrize("command", [r"sed -i '1a\src' b.py", r"grep -rn foo\b .", r"ls My\ a.py"])
def test_a_backslash_that_names_no_folder_reaches_no_file(command: str) -> None:
    messages: list[Json] = [
        user("Go."),
        *answered("1", "create", "Created file", path="src/a.py", file_text="x = 1\n"),
        *answered("2", "Bash", "", command=command),
    ]
    assert replay_files(read(messages))["src/a.py"].is_sure


def test_filed_texts_are_found_soon_in_a_long_command() -> None:
    start_seconds = process_time()
    assert set(filed_in("git " * 1_500 + " -m 'x'" * 850, {})) == {"x"}
    assert process_time() - start_seconds < 1


def test_a_command_that_no_hand_wrote_is_not_taken_apart() -> None:
    assert command_effects("a" * 3_000_000) == [MayChange()]
    assert command_effects("cat x.py " + "y" * 20_000) == [MayChange(("x.py",))]
    body = "line\n" * 100_000
    assert command_effects(f"cat > f <<'E'\n{body}E\n") == [Writes("f", body)]

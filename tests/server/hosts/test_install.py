"""`install HOST`, `uninstall HOST` and `doctor HOST`, with files in a temporary home folder."""

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from click.testing import CliRunner
from context_compaction import system
from context_compaction.system import IS_WINDOWS, is_running
from mcp_server_compaction.cli import main
from mcp_server_compaction.hosts.catalog import HOSTS, UserFolders
from mcp_server_compaction.hosts.checking import run_checks
from mcp_server_compaction.hosts.installing import (
    Installation,
    are_hooks_registered,
    plan_install,
    plan_uninstall,
)
from mcp_server_compaction.program import this_program
from ruamel.yaml import YAML

Run = Callable[..., str]

JSON_TEXT = """{
  // my own settings
  "theme": "dark", /* kept */
  "SECTION": {
    "other": {"command": "npx", "args": ["-y", "x"]} // mine
  },
}
"""
TOML_TEXT = """# my own settings
model = "gpt-5"   # kept

[mcp_servers.other]
command = 'npx'
args = [
  "-y", # yes
]

[tui]
notifications = true
"""
YAML_TEXT = """# my own settings
GOOSE_MODEL: "a model"   # kept
extensions:
    # mine
    developer:
        enabled: true
        args: ['a',   "b"]

GOOSE_MODE: auto
"""


@dataclass(frozen=True)
class Case:
    """Files of one host.

    Attributes:
        name: Name of the host.
        file: Configuration file below the home folder.
        section: Name of its table of servers.
        project_file: Configuration file below the project; empty if the host has none.
        hook_file: File of hooks below the home folder; empty if there are no hooks.
    """

    name: str
    file: str
    section: str
    project_file: str = ""
    hook_file: str = ""


CASES = [
    Case("claude-desktop", ".config/Claude/claude_desktop_config.json", "mcpServers"),
    Case("claude-code", ".claude.json", "mcpServers", ".mcp.json", ".claude/settings.json"),
    Case("codex", ".codex/config.toml", "mcp_servers", ".codex/config.toml", ".codex/hooks.json"),
    Case("cursor", ".cursor/mcp.json", "mcpServers", ".cursor/mcp.json", ".cursor/hooks.json"),
    Case("vscode", ".config/Code/User/mcp.json", "servers", ".vscode/mcp.json"),
    Case(
        "gemini-cli",
        ".gemini/settings.json",
        "mcpServers",
        ".gemini/settings.json",
        ".gemini/settings.json",
    ),
    Case(
        "opencode",
        ".config/opencode/opencode.json",
        "mcp",
        "opencode.json",
        ".config/opencode/plugins/mcp-server-compaction.js",
    ),
    Case(
        "zed",
        f".config/{'Zed' if sys.platform == 'win32' else 'zed'}/settings.json",
        "context_servers",
        ".zed/settings.json",
    ),
    Case("windsurf", ".codeium/windsurf/mcp_config.json", "mcpServers"),
    Case(
        "goose",
        f".config/{'Block/goose/config' if sys.platform == 'win32' else 'goose'}/config.yaml",
        "extensions",
    ),
]
every_host = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
WITH_HOOKS = [case for case in CASES if case.hook_file]
hooked_host = pytest.mark.parametrize("case", WITH_HOOKS, ids=lambda case: case.name)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder; the working folder is a project in it."""
    for name in list(os.environ):
        if name.startswith("XDG_") or name in {"CLAUDE_CONFIG_DIR", "CODEX_HOME", "APPDATA"}:
            monkeypatch.delenv(name)
    monkeypatch.delenv("MCP_COMPACTION_ARCHIVE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    if IS_WINDOWS:
        monkeypatch.setenv("USERPROFILE", str(tmp_path))
        monkeypatch.setenv("APPDATA", str(tmp_path / ".config"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


@pytest.fixture
def run(home: Path) -> Run:
    def run(*arguments: object, code: int = 0) -> str:
        done = CliRunner().invoke(
            main, [str(argument) for argument in arguments], catch_exceptions=False
        )
        assert done.exit_code == code, done.output
        return done.stderr if code else done.stdout

    return run


def sample(case: Case) -> str:
    """Return a configuration with comments and another server, in the format of the host."""
    texts = {".toml": TOML_TEXT, ".yaml": YAML_TEXT}
    return texts.get(Path(case.file).suffix, JSON_TEXT.replace("SECTION", case.section))


def value_of(path: Path) -> Any:
    text = path.read_text("utf-8")
    if path.suffix == ".toml":
        return tomllib.loads(text)
    if path.suffix == ".yaml":
        reader: Any = YAML(typ="safe", pure=True)
        return reader.load(text)
    lines = [line.partition("//")[0].partition("/*")[0] for line in text.splitlines()]
    return json.loads("\n".join(lines).replace(",\n}", "\n}"))


def write_file(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8"))
    return path


def slashed(path: Path) -> str:
    """Return the text of a file with / in its paths, which may be paths of Windows as JSON."""
    return re.sub(r"\\+", "/", path.read_text("utf-8"))


def files_below(folder: Path) -> dict[str, bytes]:
    """Return all files except the records of folders that `install` created."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".folders"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def test_cases_cover_every_host_of_the_catalog() -> None:
    assert [case.name for case in CASES] == list(HOSTS)


@every_host
def test_install_preserves_the_file_and_uninstall_restores_it(
    case: Case, home: Path, run: Run
) -> None:
    file = write_file(home / case.file, sample(case))
    before = files_below(home)
    run("install", case.name, "--root", home / "project")
    value = value_of(file)
    entry = value[case.section]["compaction"]
    words = entry.get("command", entry.get("cmd"))
    command: list[Any] = [words, *entry["args"]] if isinstance(words, str) else words
    assert command == [*this_program(), "--root", str(home / "project")]
    assert Path(command[0]).is_absolute()
    solid = iter(file.read_text("utf-8"))
    assert all(sign in solid for sign in sample(case) if not sign.isspace())  # comments too
    after = files_below(home)
    assert run("install", case.name).endswith("nothing was changed.\n")
    assert files_below(home) == after
    run("uninstall", case.name)
    assert files_below(home) == before
    assert run("uninstall", case.name).endswith("nothing was changed.\n")


@hooked_host
def test_install_keeps_hooks_of_other_programs_when_it_registers_its_own(
    case: Case, home: Path, run: Run
) -> None:
    foreign = {"type": "command", "command": "notify.sh"}
    events = HOSTS[case.name].hooks.events  # type: ignore[union-attr]
    if events:
        groups = {next(iter(events)): [{"hooks": [foreign]}], "Other": []}
        write_file(home / case.hook_file, json.dumps({"version": 1, "hooks": groups}, indent=4))
    before = files_below(home)
    run("install", case.name, "--hooks")
    text = (home / case.hook_file).read_text("utf-8")
    program = Path(this_program()[0]).name
    assert program in text
    if events:
        hooks = json.loads(text)["hooks"]
        assert {event for event in hooks if event != "Other"} == set(events)
        assert hooks[next(iter(events))][-1] == {"hooks": [foreign]}
        assert all(f" hook {event} --host {case.name}" in text for event in events)
    after = files_below(home)
    run("install", case.name, "--hooks")
    assert files_below(home) == after
    run("uninstall", case.name)
    assert files_below(home) == before


@every_host
def test_uninstall_removes_only_own_entries_when_the_file_was_changed(
    case: Case, home: Path, run: Run
) -> None:
    file = write_file(home / case.file, sample(case))
    run("install", case.name, *(["--hooks"] if case.hook_file else []))
    write_file(file, file.read_text("utf-8").replace("my own settings", "my later change"))
    run("uninstall", case.name)
    text = file.read_text("utf-8")
    assert "my later change" in text
    assert "compaction" not in text
    original = write_file(home / f"original{file.suffix}", sample(case))
    assert value_of(file) == value_of(original)


def test_uninstall_keeps_a_server_that_the_user_added_after_install(home: Path, run: Run) -> None:
    """The file has the bytes that `install` would have written."""
    file = write_file(home / ".claude.json", "{}")
    run("install", "claude-code")
    value = value_of(file)
    value["mcpServers"]["other"] = {"command": "npx"}
    write_file(file, json.dumps(value, indent=2))
    run("uninstall", "claude-code")
    assert value_of(file) == {"mcpServers": {"other": {"command": "npx"}}}


def test_install_makes_a_backup_when_the_program_name_is_in_another_setting(
    home: Path, run: Run
) -> None:
    text = '{"projects": {"/src/mcp-server-compaction": {}}}'
    file = write_file(home / ".claude.json", text)
    assert "Backup" in run("install", "claude-code")
    run("uninstall", "claude-code")
    assert file.read_text("utf-8") == text


@every_host
def test_uninstall_deletes_files_and_folders_that_install_created(
    case: Case, home: Path, run: Run
) -> None:
    for scope in ("user", "project") if case.project_file else ("user",):
        run("install", case.name, "--scope", scope)
        created = case.file if scope == "user" else f"project/{case.project_file}"
        assert list(files_below(home)) == [created]
        run("uninstall", case.name, "--scope", scope)
        remaining = {path.relative_to(home).as_posix() for path in home.rglob("*")}
        assert remaining <= {"project", ".mcp-server-compaction", ".local", ".local/state"}


def test_uninstall_keeps_folders_that_the_user_created_or_uses(home: Path, run: Run) -> None:
    (home / ".cursor").mkdir()
    run("install", "cursor", "--hooks")
    run("uninstall", "cursor")
    assert (home / ".cursor").is_dir()
    run("install", "codex", "--hooks")
    write_file(home / ".codex/auth.json", "{}")
    run("uninstall", "codex")
    assert list(files_below(home)) == [".codex/auth.json"]


@every_host
def test_install_writes_nothing_when_it_shows_a_plan_or_refuses_the_file(
    case: Case, home: Path, run: Run
) -> None:
    file = write_file(home / case.file, sample(case))
    before = files_below(home)
    hooks = ["--hooks"] if case.hook_file else []
    diff = run("install", case.name, *hooks, "--dry-run")
    assert f"+++ {file}" in diff
    assert all(line[:1] in {" ", "+", "-", "@"} for line in diff.splitlines())
    assert Path(this_program()[0]).name in run("install", case.name, *hooks, "--print")
    assert files_below(home) == before
    write_file(file, sample(case) + "\n}{ : [\n")
    before = files_below(home)
    error = run("install", case.name, code=2)
    assert str(file) in error
    assert "line" in error
    assert "Nothing was written" in error
    assert files_below(home) == before


@pytest.mark.parametrize(
    ("content", "arguments", "error"),
    [
        (b'["a"]', ["claude-code"], "Nothing was written"),
        (b"\xff\xfe{}", ["claude-code", "--hooks"], "Nothing was written"),
        (b'{"mcpServers": []}', ["claude-code"], "Nothing was written"),
        (b'{"mcpServers": {"compaction": {"command": "x"}}}', ["claude-code"], "another server"),
        (b"{}", ["claude-code", "--root", "absent"], "is not a folder"),
        (b"{}", ["goose", "--scope", "project"], "none for a project"),
        (b"{}", ["zed", "--hooks"], "nothing is archived automatically"),
    ],
)
def test_install_changes_no_file_when_it_refuses_an_argument_or_file(
    home: Path, run: Run, content: bytes, arguments: list[str], error: str
) -> None:
    (home / ".claude.json").write_bytes(content)
    write_file(home / ".claude/settings.json", "{}")
    before = files_below(home)
    assert error in run("install", *arguments, code=2)
    assert files_below(home) == before


def test_install_writes_nothing_when_the_second_file_or_a_flag_is_invalid(
    home: Path, run: Run
) -> None:
    write_file(home / ".claude/settings.json", "{ nonsense")
    before = files_below(home)
    run("install", "claude-code", "--hooks", code=2)
    for flags in (("--redaction", "maybe"), ("--summarizer-model", "nameless")):
        assert flags[1] in run(*flags, "install", "cursor", "--hooks", code=2)
    assert files_below(home) == before
    models = ("--summarizer-model", "openai:m", "--summarizer-model", "openai:n")
    # The host passes the key to the server.
    run(*models, "--summarizer-key-env", "HOST_KEY", "install", "cursor")
    entry = json.loads((home / ".cursor/mcp.json").read_text())["mcpServers"]
    assert str(entry).count("--summarizer-model") == 2


def test_install_keeps_earlier_flags_when_it_runs_again(home: Path, run: Run) -> None:
    file = home / ".cursor/mcp.json"

    def arguments() -> list[str]:
        entry = value_of(file)["mcpServers"]["compaction"]
        return [entry["command"], *entry["args"]][len(this_program()) :]

    run("--redaction", "on", "install", "cursor", "--root", home)
    value = value_of(file)
    value["mcpServers"]["compaction"]["env"] = {"A": "b"}
    write_file(file, json.dumps(value))
    run("install", "cursor", "--hooks")
    assert arguments() == ["--redaction", "on", "--root", str(home)]
    assert value_of(file)["mcpServers"]["compaction"]["env"] == {"A": "b"}
    run("--archive", home / "kept", "install", "cursor", "--root", home / "project")
    project = ["--root", str(home / "project"), "--archive", str(home / "kept")]
    assert arguments() == ["--redaction", "on", *project]
    flags = f"--archive {(home / 'kept').as_posix()} --redaction on"
    assert flags in slashed(home / ".cursor/hooks.json")
    old = [*this_program()[1:], "--archive=old", "serve", "--http"]
    value["mcpServers"]["compaction"]["args"] = old
    write_file(file, json.dumps(value))
    run("install", "cursor", "--root", home)
    assert arguments() == ["--archive=old", "--root", str(home), "serve", "--http"]


@hooked_host
def test_install_updates_registered_hooks_when_it_runs_without_the_hooks_option(
    case: Case, home: Path, run: Run
) -> None:
    run("install", case.name, "--hooks")
    output = run("--archive", home / "kept", "install", case.name)
    assert "add --hooks" not in output
    assert (home / "kept").as_posix() in slashed(home / case.hook_file)
    after = files_below(home)
    assert run("install", case.name).endswith("nothing was changed.\n")
    assert files_below(home) == after
    run("uninstall", case.name)
    assert files_below(home) == {}
    run("install", case.name)
    assert "add --hooks" in run("--archive", home / "other", "install", case.name)
    assert not (home / "other").exists()


@pytest.mark.posix("symbolic links")
def test_install_keeps_a_symbolic_link_and_the_mode_of_its_file(home: Path, run: Run) -> None:
    real = write_file(home / "dotfiles/cursor.json", "{}")
    real.chmod(0o640)
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").symlink_to(real)
    run("install", "cursor")
    assert (home / ".cursor/mcp.json").is_symlink()
    assert "compaction" in real.read_text("utf-8")
    assert real.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("linux", "/h/.config/Claude/claude_desktop_config.json"),
        ("darwin", "/h/Library/Application Support/Claude/claude_desktop_config.json"),
        ("win32", "/roaming/Claude/claude_desktop_config.json"),
    ],
)
def test_host_file_is_in_the_settings_folder_of_the_platform(platform: str, expected: str) -> None:
    folders = UserFolders(Path("/h"), Path("/p"), {"APPDATA": "/roaming"}, platform)
    assert HOSTS["claude-desktop"].file(folders, "user") == Path(expected)


def test_host_file_is_in_the_package_of_claude_desktop_when_windows_has_one(tmp_path: Path) -> None:
    local = tmp_path / "Local"
    environment = {"APPDATA": str(tmp_path / "Roaming"), "LOCALAPPDATA": str(local)}
    folders = UserFolders(tmp_path, tmp_path, environment, "win32")
    plain = write_file(tmp_path / "Roaming/Claude/claude_desktop_config.json", "{}")
    assert HOSTS["claude-desktop"].file(folders, "user") == plain
    (local / "Packages/Claude_0removed").mkdir(parents=True)
    package = local / "Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming"
    package.mkdir(parents=True)
    expected = package / "Claude/claude_desktop_config.json"
    assert HOSTS["claude-desktop"].file(folders, "user") == expected
    assert HOSTS["zed"].file(folders, "user") == tmp_path / "Roaming/Zed/settings.json"


def test_install_uses_the_folder_that_an_environment_variable_sets(home: Path, run: Run) -> None:
    moved = CliRunner(env={"CODEX_HOME": str(home / "cx"), "CLAUDE_CONFIG_DIR": str(home / "cc")})
    for host in ("codex", "claude-code"):
        assert moved.invoke(main, ["install", host, "--hooks"]).exit_code == 0
    assert {"cx/config.toml", "cx/hooks.json", "cc/.claude.json", "cc/settings.json"} == set(
        files_below(home)
    )


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers = { foo = { command = "a" } } # mine\nmodel = "x"\n',
        "mcp_servers = {}\n",
    ],
)
def test_install_adds_to_toml_with_inline_tables(run: Run, home: Path, text: str) -> None:
    path = write_file(home / ".codex/config.toml", text)
    run("install", "codex")
    servers = tomllib.loads(path.read_text("utf-8"))["mcp_servers"]
    assert servers.pop("compaction")["command"] == this_program()[0]
    assert servers == tomllib.loads(text)["mcp_servers"]
    run("uninstall", "codex")
    assert path.read_text("utf-8") == text


@pytest.mark.slow
def test_doctor_reports_missing_hooks_and_a_server_that_does_not_start(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_server_compaction.hosts.checking.TOTAL_SECONDS", 150)

    def doctor(code: int = 1) -> str:
        done = CliRunner().invoke(main, ["doctor", "codex"], catch_exceptions=False)
        assert done.exit_code == code
        return done.stdout

    assert "install codex --hooks" in doctor()
    run("install", "codex")
    output = doctor()
    assert "search_transcript" in output
    assert "PROBLEM  no hooks" in output
    run("install", "codex", "--hooks")
    assert "ok       hooks are registered" in doctor(0)
    path = home / ".codex/config.toml"
    program = json.dumps(this_program()[0])
    path.write_text(path.read_text("utf-8").replace(program, '"/nowhere/program"'), "utf-8")
    assert "/nowhere/program cannot be started" in doctor()
    path.write_text("[", "utf-8")
    assert "PROBLEM" in doctor()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell script as server")
@pytest.mark.posix("terminals and scripts with #!")
def test_doctor_prints_each_finding_at_once_and_ends_when_the_server_hangs(
    home: Path, run: Run
) -> None:
    run("install", "codex")
    path = home / ".codex/config.toml"
    silent = write_file(home / "silent", f"#!/bin/sh\necho $$ >{home}/pid\nexec sleep 1000\n")
    silent.chmod(0o755)
    path.write_text(path.read_text("utf-8").replace(this_program()[0], str(silent)), "utf-8")
    command = [*this_program(), "doctor", "codex"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as doctor:
        assert doctor.stdout is not None
        assert "registered in" in doctor.stdout.readline()
        assert doctor.poll() is None
        assert "has not answered in time" in doctor.stdout.read()
    assert doctor.returncode == 1
    assert not is_running(int((home / "pid").read_text("ascii")))


def test_checks_that_hang_are_named_and_the_others_have_results() -> None:
    hanging = Event()
    checks = {"hangs": hanging.wait, "quick": lambda: True, "hangs too": hanging.wait}
    results = dict(run_checks(checks, time.monotonic() + 0.1))
    assert results == {"hangs": None, "quick": True, "hangs too": None}
    hanging.set()


def test_hooks_are_found_when_their_program_is_in_a_folder_of_windows_with_a_space(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "IS_WINDOWS", True)
    program = [r"C:\Users\Ann Lee\Scripts\mcp-server-compaction.exe"]
    host, folders = HOSTS["cursor"], UserFolders(home, home / "project", {})
    changes = plan_install(host, "user", folders, Installation(program, with_hooks=True))
    for change in changes:
        write_file(change.path, change.after or "")
    handler = value_of(home / ".cursor/hooks.json")["hooks"]["stop"][0]
    assert handler["command"].startswith(f'"{program[0]}" hook stop')
    assert value_of(home / ".cursor/mcp.json")["mcpServers"]["compaction"]["command"] == program[0]
    assert are_hooks_registered(host, "user", folders)
    assert {change.after for change in plan_uninstall(host, "user", folders)} == {None}


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_program_prints_help_on_a_terminal_when_it_gets_no_arguments(tmp_path: Path) -> None:
    import pty

    leader, follower = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "mcp_server_compaction"],
            stdin=follower,
            stdout=follower,
            stderr=subprocess.PIPE,
            env={**os.environ, "HOME": str(tmp_path), "TERM": "dumb"},
            timeout=150,
            check=False,
        )
        assert done.returncode == 0
        assert b"install" in os.read(leader, 65_536)
    finally:
        os.close(leader)
        os.close(follower)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.posix("pseudo-terminals")
def test_install_asks_on_a_terminal_for_each_host_that_it_finds(home: Path) -> None:
    import pty

    for name in (".codex", ".cursor", ".gemini"):
        (home / name).mkdir()
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "mcp_server_compaction", "install"]
    environment = {**os.environ, "TERM": "dumb"}
    with subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env=environment
    ) as process:
        os.close(follower)
        for question, reply in (
            ("Register in Codex? [Y/n]: ", "n"),
            ("Register in Cursor? [Y/n]: ", "perhaps"),
            ("Register in Cursor? [Y/n]: ", ""),
            ("Register in Gemini CLI? [Y/n]: ", "yes"),
        ):
            shown = ""
            while not shown.endswith(question):
                shown += os.read(leader, 4_096).decode()
            os.write(leader, f"{reply}\n".encode())
        assert process.wait() == 0
        assert str(home / ".cursor/mcp.json") in os.read(leader, 65_536).decode()
    os.close(leader)
    found = {name for name in files_below(home) if not name.startswith(".local")}
    assert found == {".cursor/mcp.json", ".gemini/settings.json"}

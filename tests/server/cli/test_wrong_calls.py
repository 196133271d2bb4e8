"""A wrong call has one exit code, whichever command and option it is of."""

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from mcp_server_compaction.cli import main

# Beside what click itself refuses: what a command needs before it looks at a value.
ARGUMENTS = {
    "compact": ["s.json"],
    "compare": ["s.json"],
    "persist": ["s.json"],
    "search": ["hello"],
    "read": ["transcript://s/messages/0-1"],
    "token create": ["--user", "robin"],
    "token revoke": ["00ff"],
    "migrate": ["archive", "other"],
    "install": ["codex"],
    "uninstall": ["codex"],
    "wrap": ["--", "true"],
    "serve": ["--http"],
}
# Names and texts of the caller's own: none is wrong by itself.
FREE = {
    "--archive", "--summary-model", "--model", "--instructions", "--pin", "--user", "--tool",
    "--path", "--pattern", "--unix-socket", "--audit-log", "--oauth-audience",
    "--oauth-tenant-claim",
}  # fmt: skip
WRONG = {
    "--session": "a/b",
    "--of": "a/b",
    "--tenant": "a b",
    "--out": "nope.txt",
    "--html": "nowhere/page.html",
    "--oauth-issuer": "nope",
    "--oauth-jwks-url": "nope",
    "--header": "nope",
}


def options_of(group: click.Group, path: str = "") -> Iterator[tuple[str, str]]:
    """Each option that takes a value, with its command."""
    for option in group.params:
        if isinstance(option, click.Option) and not option.is_flag:
            yield path, option.opts[0]
    for name, command in group.commands.items():
        inner = f"{path} {name}".strip()
        if isinstance(command, click.Group):
            yield from options_of(command, inner)
        else:
            for option in command.params:
                if isinstance(option, click.Option) and not option.is_flag:
                    yield inner, option.opts[0]


CASES = sorted({(path, option) for path, option in options_of(main) if option not in FREE})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MCP_COMPACTION_ARCHIVE", str(tmp_path / "archive"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "archive").mkdir(mode=0o700)
    (tmp_path / "s.json").write_text(json.dumps([{"role": "user", "content": "Hello."}]), "utf-8")
    done = CliRunner().invoke(main, ["compact", "s.json", "--mode", "record", "--session", "s"])
    assert done.exit_code == 0, done.output
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("command", "option"), CASES)
def test_a_value_that_an_option_cannot_have_ends_with_2(command: str, option: str) -> None:
    words = command.split()
    wrong = [option, WRONG.get(option, "nope")]
    call = [*words, *wrong, *ARGUMENTS.get(command, [])] if words else [*wrong, "sessions"]
    done = CliRunner().invoke(main, call)
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert "Error: " in done.stderr
    last = done.stderr.splitlines()[-1]
    assert option in last or wrong[1] in last or "--public-url" in last


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "call",
    [
        "nope", "sessions --nope", "search", "delete", "completion nope", "install nope",
        "read nope", "doctor nope", "compare nope.json", "persist nope.txt", "import nope",
        "prune", "wrap",
        "migrate archive archive", "pin a/b", "search --kind regex (",
    ],
)  # fmt: skip
def test_a_call_that_cannot_be_meant_ends_with_2(call: str) -> None:
    done = CliRunner().invoke(main, call.split())
    assert (done.exit_code, done.stdout) == (2, ""), done.output


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "call",
    [
        "compact nope", "read transcript://nope/messages/0-1", "sessions --of nope", "pin nope",
        "delete nope --yes", "search hello --session nope", "token revoke 00ff",
        "migrate archive other --tenant nope",
    ],
)  # fmt: skip
def test_a_right_call_about_what_is_not_there_ends_with_1(call: str) -> None:
    done = CliRunner().invoke(main, call.split())
    assert (done.exit_code, done.stdout) == (1, ""), done.output
    assert "Error: " in done.stderr

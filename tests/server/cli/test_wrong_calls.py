"""Every invalid call exits with 2, and a call about missing data exits with 1."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from mcp_server_compaction.cli import main

# Arguments that a command needs before it checks the value of an option.
ARGUMENTS = {
    "compact": ["s.json"],
    "undo": ["s.json"],
    "compare": ["s.json"],
    "search": ["hello"],
    "token create": ["--user", "robin"],
    "token revoke": ["00ff"],
    "migrate": ["archive", "other"],
    "install": ["codex"],
    "uninstall": ["codex"],
    "wrap": ["--", "true"],
    "proxy run": ["--", "true"],
    "serve": ["--http"],
}
# Options that accept any text.
FREE = {
    "--archive", "--model", "--instructions", "--pin", "--user", "--tool",
    "--path", "--unix-socket", "--audit-log", "--oauth-audience",
    "--oauth-tenant-claim", "--save",
}  # fmt: skip
INVALID = {
    "--session": "a/b",
    "--tenant": "a b",
    "--out": "nope.txt",
    "--oauth-issuer": "nope",
    "--oauth-jwks-url": "nope",
    "--header": "nope",
}


def options_of(group: click.Group, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the command and flag of each option that takes a value."""
    for option in group.params:
        if isinstance(option, click.Option) and not option.is_flag:
            yield path, option.opts[0]
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = f"{path} {name}".strip()
        if isinstance(command, click.Group):
            yield from options_of(command, inner)
        elif command is not None:
            for option in command.params:
                if isinstance(option, click.Option) and not option.is_flag:
                    yield inner, option.opts[0]


CASES = sorted({(path, option) for path, option in options_of(main) if option not in FREE})


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a conversation and its archive, which no invalid call changes."""
    folder = tmp_path_factory.mktemp("workplace")
    (folder / "archive").mkdir(mode=0o700)
    (folder / "s.json").write_text(json.dumps([{"role": "user", "content": "Hello."}]), "utf-8")
    call = ["--archive", str(folder / "archive"), "compact", str(folder / "s.json")]
    result = CliRunner().invoke(main, [*call, "--mode", "record", "--session", "s"])
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def call(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], Result]:
    monkeypatch.setenv("MCP_COMPACTION_ARCHIVE", str(workplace / "archive"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(workplace / "cache"))
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(workplace))
    monkeypatch.chdir(workplace)
    return lambda words: CliRunner().invoke(main, words)


Call = Callable[[list[str]], Result]


@pytest.mark.parametrize(("command", "option"), CASES)
def test_exit_code_is_2_when_an_option_has_an_invalid_value(
    call: Call, command: str, option: str
) -> None:
    words = command.split()
    invalid = [option, INVALID.get(option, "nope")]
    result = call(
        [*words, *invalid, *ARGUMENTS.get(command, [])] if words else [*invalid, "sessions"]
    )
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert "Error: " in result.stderr
    last = result.stderr.splitlines()[-1]
    assert option in last or invalid[1] in last or "--public-url" in last


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("nope", "nope"),
        ("sessions --nope", "--nope"),
        ("search", "QUERY"),
        ("delete", "SESSIONS"),
        ("install nope", "goose"),
        ("read nope", "Invalid pointer"),
        ("read s", "s/0-9"),
        ("doctor nope", "goose"),
        ("compare nope.json", "nope.json"),
        ("compare s.json --policies defualt", "Unknown policy"),
        ("import nope", "nope"),
        ("prune", "--older-than"),
        ("wrap", "--url"),
        ("migrate archive archive", "same archive"),
        ("migrate nothing archive", "no archive in"),
        ("pin a/b", "a/b"),
        ("search --kind regex (", "("),
        ("search x --since yesterday", "ISO 8601"),
        ("compact s.json --target lots", "25%"),
        ("compact s.json --out out.txt", ".jsonl"),
        ("compact s.json --out s.json", "input file"),
        ("serve --public-url https://a.example", "--http"),
        ("serve --metrics", "--http"),
        ("--root /absent doctor", "not a folder"),
    ],
)
def test_exit_code_is_2_when_a_call_is_invalid(call: Call, words: str, expected: str) -> None:
    result = call(words.split())
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert expected in result.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("compact nope", "No such file or session"),
        ("compact .", "Not a regular file: ."),
        (f"compact {os.devnull}", "Not a regular file"),
        ("read o_0123456789abcdef01234567", " search WORDS"),
        ("read transcript://nope/messages/0-1", "nope"),
        ("read s/7-9", "messages 0 to 0"),
        ("pin nope", "nope"),
        ("delete nope --yes", "nope"),
        ("search hello --session nope", "no session 'nope'"),
        ("token revoke 00ff", "00ff"),
        ("migrate archive other --tenant nope", "nope"),
    ],
)
def test_exit_code_is_1_when_the_named_data_does_not_exist(
    call: Call, words: str, expected: str
) -> None:
    result = call(words.split())
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    assert expected in result.stderr.partition("Error: ")[2]

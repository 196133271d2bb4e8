"""A wrong call has one exit code, whichever command and option it is of."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from mcp_server_compaction.cli import main

# Beside what click itself refuses: what a command needs before it looks at a value.
ARGUMENTS = {
    "compact": ["s.json"],
    "compare": ["s.json"],
    "search": ["hello"],
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
    "--path", "--unix-socket", "--audit-log", "--oauth-audience",
    "--oauth-tenant-claim",
}  # fmt: skip
WRONG = {
    "--session": "a/b",
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
    """A folder with a conversation and its archive, which no wrong call changes."""
    folder = tmp_path_factory.mktemp("workplace")
    (folder / "archive").mkdir(mode=0o700)
    (folder / "s.json").write_text(json.dumps([{"role": "user", "content": "Hello."}]), "utf-8")
    call = ["--archive", str(folder / "archive"), "compact", str(folder / "s.json")]
    done = CliRunner().invoke(main, [*call, "--mode", "record", "--session", "s"])
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def call(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], Result]:
    monkeypatch.setenv("MCP_COMPACTION_ARCHIVE", str(workplace / "archive"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(workplace / "cache"))
    monkeypatch.setenv("HOME", str(workplace))
    monkeypatch.chdir(workplace)
    return lambda words: CliRunner().invoke(main, words)


Call = Callable[[list[str]], Result]


@pytest.mark.parametrize(("command", "option"), CASES)
def test_a_value_that_an_option_cannot_have_ends_with_2(
    call: Call, command: str, option: str
) -> None:
    words = command.split()
    wrong = [option, WRONG.get(option, "nope")]
    done = call([*words, *wrong, *ARGUMENTS.get(command, [])] if words else [*wrong, "sessions"])
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert "Error: " in done.stderr
    last = done.stderr.splitlines()[-1]
    assert option in last or wrong[1] in last or "--public-url" in last


@pytest.mark.parametrize(
    ("words", "said"),
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
def test_a_call_that_cannot_be_meant_ends_with_2(call: Call, words: str, said: str) -> None:
    done = call(words.split())
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert said in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("compact nope", "is no file and no archived session"),
        ("compact .", ". is a folder"),
        (f"compact {os.devnull}", "is no regular file"),
        ("read o_0123456789abcdef01234567", "mcp-server-compaction search WORDS"),
        ("read transcript://nope/messages/0-1", "nope"),
        ("read s/7-9", "messages 0 to 0"),
        ("pin nope", "nope"),
        ("delete nope --yes", "nope"),
        ("search hello --session nope", "no session 'nope'"),
        ("token revoke 00ff", "00ff"),
        ("migrate archive other --tenant nope", "nope"),
    ],
)
def test_a_right_call_about_what_is_not_there_ends_with_1(
    call: Call, words: str, said: str
) -> None:
    done = call(words.split())
    assert (done.exit_code, done.stdout) == (1, ""), done.output
    assert said in done.stderr.partition("Error: ")[2]

"""Options may come from a flag, a variable or a file, in this order; the docs name all of them."""

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from mcp_server_compaction.cli import main
from mcp_server_compaction.cli.serving import serve
from mcp_server_compaction.config import MODEL_VARIABLE, POLICY_VARIABLE

ROOT = Path(__file__).resolve().parents[3]


def test_a_variable_goes_before_the_file_and_a_flag_before_both(tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("file", "variable", "flag")}
    for place in places.values():
        place.mkdir()
    lines = (f"{name} = '{places['file']}'" for name in ("archive", "root"))
    (tmp_path / "options.toml").write_text("\n".join(lines), encoding="utf-8")
    named = ["MCP_COMPACTION_ARCHIVE", "MCP_COMPACTION_ROOTS"]

    variables: dict[str, str | None] = dict.fromkeys(named, str(places["variable"]))
    unset: dict[str, str | None] = dict.fromkeys(named)
    flags = [f"--archive={places['flag']}", f"--root={places['flag']}"]
    for name, words, environment in (
        ("file", [], unset),
        ("variable", [], variables),
        ("flag", flags, variables),
    ):
        asked = ["--config", str(tmp_path / "options.toml"), *words, "doctor"]
        told = CliRunner().invoke(main, asked, env=environment).stdout
        assert re.findall(r"^(?:archive|roots)  +(\S+)", told, re.MULTILINE) == [
            str(places[name]),
            str(places[name]),
        ]


def test_a_file_names_one_root_or_several_and_commands_of_commands(tmp_path: Path) -> None:
    path = tmp_path / "options.toml"
    start = f'archive = "{tmp_path / "archive"}"\n'
    for roots in (f'"{tmp_path}"', f'["{tmp_path}", "{tmp_path.parent}"]'):
        path.write_text(f"{start}root = {roots}\n[token.create]\nuser = 'zoe'\nscope = 'read'\n")
        made = CliRunner().invoke(main, ["--config", str(path), "token", "create"])
        assert made.exit_code == 0, made.output
    listed = CliRunner().invoke(main, ["--config", str(path), "token", "list"]).stdout
    assert listed.count("zoe  read  never") == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("archive = ", "as TOML"),
        ('achive = "x"', "'achive'"),
        ("[serve]\nprot = 1", "'prot', which is no option of serve"),
        ("serve = 1", "[serve]"),
        ('archive = ["a", "b"]', "'archive' several values"),
        ("root = {}", "'root' several values"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_in_words(
    text: str, told: str, tmp_path: Path
) -> None:
    path = tmp_path / "options.toml"
    path.write_text(text)
    done = CliRunner().invoke(main, ["--config", str(path), "doctor"])
    assert done.exit_code == 2
    assert told in done.stderr


def test_the_docs_have_every_option_of_the_service() -> None:
    page = (ROOT / "docs" / "how-to" / "operations.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"\| `serve --([a-z-]+)` \| `MCP_COMPACTION_SERVE_([A-Z_]+)`", page))
    named = {
        option.removeprefix("--"): (parameter.name or "").upper()
        for parameter in serve.params
        for option in parameter.opts
    }
    assert listed == named
    others = set(re.findall(r"\| (`--[a-z-]+`|–) \| `([A-Z_]+)`", page))
    variables = {(f"`{one.opts[0]}`", one.envvar) for one in main.params if one.envvar}
    assert variables == {(flag, variable) for flag, variable in others if flag != "–"}
    unnamed = {variable for flag, variable in others if flag == "–"}
    assert unnamed == {POLICY_VARIABLE, MODEL_VARIABLE}


@pytest.mark.parametrize("name", ["compose.yaml", "Caddyfile"])
def test_the_compose_files_are_where_the_docs_say(name: str) -> None:
    from ruamel.yaml import YAML

    path = ROOT / "packages" / "compose" / name
    if name.endswith("yaml"):
        loader: Any = YAML(typ="safe")
        services = loader.load(path)["services"]
        command = services["service"]["command"]
        options = {option for one in serve.params for option in one.opts}
        assert {word.partition("=")[0] for word in command[1:]} <= options
    else:
        assert "service 8765" in path.read_text(encoding="utf-8")

"""The documentation and the compose files use existing options and variables."""

import re
from pathlib import Path
from typing import Any

import pytest
from mcp_server_compaction.cli import main
from mcp_server_compaction.cli.serving import serve
from mcp_server_compaction.config import MODEL_VARIABLE, POLICY_VARIABLE

ROOT = Path(__file__).resolve().parents[3]


def test_documentation_lists_every_option_and_variable_of_the_service() -> None:
    page = (ROOT / "docs" / "how-to" / "operations.md").read_text(encoding="utf-8")
    documented = dict(
        re.findall(r"\| `serve --([a-z-]+)` \| `MCP_COMPACTION_SERVE_([A-Z_]+)`", page)
    )
    existing = {
        option.removeprefix("--"): (parameter.name or "").upper()
        for parameter in serve.params
        for option in parameter.opts
    }
    assert documented == existing
    main_options = set(re.findall(r"\| (`--[a-z-]+`|–) \| `([A-Z_]+)`", page))
    variables = {(f"`{option.opts[0]}`", option.envvar) for option in main.params if option.envvar}
    assert variables == {(flag, variable) for flag, variable in main_options if flag != "–"}
    without_flag = {variable for flag, variable in main_options if flag == "–"}
    assert without_flag == {POLICY_VARIABLE, MODEL_VARIABLE}


@pytest.mark.parametrize("name", ["compose.yaml", "Caddyfile"])
def test_compose_files_use_existing_options(name: str) -> None:
    from ruamel.yaml import YAML

    path = ROOT / "packages" / "compose" / name
    if name.endswith("yaml"):
        loader: Any = YAML(typ="safe")
        services = loader.load(path)["services"]
        command = services["service"]["command"]
        options = {flag for option in serve.params for flag in option.opts}
        assert {word.partition("=")[0] for word in command[1:]} <= options
    else:
        assert "service 8765" in path.read_text(encoding="utf-8")

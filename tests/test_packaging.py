"""The README is correct, dependencies are pinned, and packages agree on the version."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from mcp_server_compaction.cli import main
from mcp_server_compaction.hosts.catalog import HOSTS
from mcp_server_compaction.protocol.tools import TOOLS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PINS = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()


def test_the_readme_contains_the_two_commands_and_is_short() -> None:
    venv = "python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt"
    lines = README.splitlines()
    script = ".venv/bin/mcp-server-compaction compact examples/pi-session.jsonl --target 25%"
    assert f"{venv} . && {script}" in lines
    assert f"{venv} -e '.[test]' && .venv/bin/pytest -q" in lines
    assert len(lines) <= 110


def test_the_first_command_of_the_readme_registers_the_server_in_a_host() -> None:
    first = re.findall(r"^```\n(.*?)^```", README, re.MULTILINE | re.DOTALL)[0]
    # The command uses the folder of pipx, which is not on the PATH of a fresh machine.
    command = first.partition('&& "$(pipx environment --value PIPX_BIN_DIR)"/')[2].split()[1:]
    assert command
    assert CliRunner().invoke(main, [*command, "--help"]).exit_code == 0
    assert [name for name in HOSTS if name not in README] == []


def test_the_readme_names_the_four_tools() -> None:
    named = re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE)
    assert sorted(named) == sorted(TOOLS)


def test_links_of_the_readme_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_library_code_of_the_readme_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        cwd=tmp_path,
        encoding="utf-8",
        timeout=150,
        check=True,
    )
    assert run.stdout.startswith("unchanged ")
    assert (tmp_path / "archive").is_dir()


def test_dependencies_are_pinned_without_a_url() -> None:
    assert [pin for pin in PINS if not re.fullmatch(r"[a-z0-9_.-]+==[^ /]+( ; .+)?", pin)] == []
    assert not any("://" in pin for pin in PINS)
    project = PROJECT["project"]
    requirements = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
        *PROJECT["dependency-groups"]["dev"],
        *PROJECT["dependency-groups"]["docs"],
    ]
    pinned = {pin.partition("==")[0] for pin in PINS}
    names = {re.split(r"[\[<>=!~ ;]", requirement)[0] for requirement in requirements}
    assert names - pinned == {project["name"]}  # one extra includes others of this project


def test_the_package_names_its_operating_systems() -> None:
    systems = [name for name in PROJECT["project"]["classifiers"] if name.startswith("Operating")]
    names = ["MacOS", "Microsoft :: Windows", "POSIX"]
    assert systems == [f"Operating System :: {name}" for name in names]


def test_packages_have_the_version_of_the_project() -> None:
    packages = ROOT / "packages"
    manifests = [
        ROOT / ".claude-plugin/marketplace.json",
        packages / "claude-code/.claude-plugin/plugin.json",
        packages / "gemini-cli/gemini-extension.json",
        packages / "mcp-registry/server.json",
        packages / "mcpb/manifest.json",
    ]
    versions = [
        (path.name, version)
        for path in manifests
        for version in re.findall(r'"version": "([^"]+)"', path.read_text(encoding="utf-8"))
    ]
    assert {name for name, _ in versions} == {path.name for path in manifests}
    assert {version for _, version in versions} == {PROJECT["project"]["version"]}


def test_pulled_images_have_the_tag_of_one_release() -> None:
    files = [ROOT / "packages/compose/compose.yaml", ROOT / "packages/docker/Dockerfile"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    images = re.findall(r"^(?: *image:|FROM) (\S+)", text, re.MULTILINE)
    assert len(images) == 6
    release = r":(?:\d+\.\d+|RELEASE\.\d{4})"
    assert [image for image in images if not re.search(release, image)] == []

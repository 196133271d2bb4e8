"""Real hosts from npm without a terminal, each with a temporary home folder and a local model.

`MCP_COMPACTION_HOST_CLIENTS` is a folder that contains `node_modules` with the hosts, or "npm" to
install them into a temporary folder. Without it the tests are skipped, because a host can take half
a gigabyte.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE_VARIABLE = "MCP_COMPACTION_HOST_CLIENTS"
INSTALL_SECONDS = 150
RUN_SECONDS = 150


@dataclass(frozen=True)
class HostClient:
    """Installation and use of one host.

    Attributes:
        package: Package on npm, with the tested version.
        command: Name of the program.
        set_up: Writes the configuration for the model, and returns environment variables.
        ask: Returns the arguments that send a prompt, in a new session or in the given one.
    """

    package: str
    command: str
    set_up: Callable[[Path, str], dict[str, str]]
    ask: Callable[[str, str | None], list[str]]


def _claude_code(home: Path, url: str) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "scripted",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        # Without this, the first request is sent before the tools of servers are known.
        "MCP_CONNECTION_NONBLOCKING": "0",
    }


def _ask_claude_code(text: str, session_id: str | None) -> list[str]:
    resume = ["--resume", session_id] if session_id else []
    allowed = "Bash(seq:*),mcp__compaction__search_transcript"
    return [*resume, "--allowedTools", allowed, "-p", text]


def _codex(home: Path, url: str) -> dict[str, str]:
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text(
        'model = "gpt-5"\nmodel_provider = "scripted"\ncheck_for_update_on_startup = false\n'
        "tool_output_token_limit = 12000\n"  # more than 10,000 characters reach a hook
        "[analytics]\nenabled = false\n"
        '[model_providers.scripted]\nname = "scripted"\nwire_api = "responses"\n'
        f'base_url = "{url}/v1"\nenv_key = "SCRIPTED_KEY"\n'
        "request_max_retries = 0\nstream_max_retries = 0\n",
        "utf-8",
    )
    return {"SCRIPTED_KEY": "scripted"}


def _ask_codex(text: str, session_id: str | None) -> list[str]:
    # A test computer may not be able to run the sandbox of Codex.
    options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    options += ["--dangerously-bypass-hook-trust"]  # a test has no user who could allow the hooks
    resume = ["resume", session_id] if session_id else []
    return ["exec", *options, *resume, text]


def _pi(home: Path, url: str) -> dict[str, str]:
    model = {
        "id": "scripted-1",
        "name": "scripted",
        "reasoning": False,
        "input": ["text"],
        "contextWindow": 200_000,
        "maxTokens": 8_192,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
    }
    provider = {"baseUrl": url, "apiKey": "scripted", "api": "anthropic-messages"}
    (home / ".pi/agent").mkdir(parents=True)
    (home / ".pi/agent/models.json").write_text(
        json.dumps({"providers": {"scripted": {**provider, "models": [model]}}}), "utf-8"
    )
    return {"PI_OFFLINE": "1", "PI_TELEMETRY": "0"}


def _ask_pi(text: str, session_id: str | None) -> list[str]:
    resume = ["--session", session_id] if session_id else []
    return ["--provider", "scripted", "--model", "scripted-1", *resume, "-p", text]


def _opencode(home: Path, url: str) -> dict[str, str]:
    model = {"name": "scripted", "limit": {"context": 200_000, "output": 8_000}}
    provider = {
        "options": {"baseURL": f"{url}/v1", "apiKey": "scripted"},
        "models": {"claude-sonnet-4-5": model},
    }
    config = {
        "$schema": "https://opencode.ai/config.json",  # opencode would add it
        "autoupdate": False,
        "share": "disabled",
        "model": "anthropic/claude-sonnet-4-5",
        "enabled_providers": ["anthropic"],
        "provider": {"anthropic": provider},
    }
    folder = home / ".config/opencode"
    folder.mkdir(parents=True)
    (folder / "opencode.json").write_text(json.dumps(config), "utf-8")
    # With a plugin, opencode installs the types of plugins from npm. These files show that they are
    # installed, because without a network every start would wait one minute.
    (folder / "node_modules").mkdir()
    types = {"dependencies": {"@opencode-ai/plugin": "1.18.33"}}
    (folder / "package.json").write_text(json.dumps(types), "utf-8")
    (folder / "package-lock.json").write_text(json.dumps({"packages": {"": types}}), "utf-8")
    return {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}


def _ask_opencode(text: str, session_id: str | None) -> list[str]:
    return ["run", *(["-s", session_id] if session_id else []), text]


def _gemini_cli(home: Path, url: str) -> dict[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    }
    (home / ".gemini").mkdir()
    (home / ".gemini/settings.json").write_text(json.dumps(settings), "utf-8")
    return {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "scripted"}


def _ask_gemini_cli(text: str, session_id: str | None) -> list[str]:
    options = ["-m", "gemini-2.5-flash", "--approval-mode", "yolo", "--skip-trust"]
    return [*options, *(["--resume", session_id] if session_id else []), "-p", text]


CLIENTS: Mapping[str, HostClient] = {
    "claude-code": HostClient(
        "@anthropic-ai/claude-code@2.1.197", "claude", _claude_code, _ask_claude_code
    ),
    "codex": HostClient("@openai/codex@0.169.0", "codex", _codex, _ask_codex),
    "gemini-cli": HostClient("@google/gemini-cli@0.61.0", "gemini", _gemini_cli, _ask_gemini_cli),
    "opencode": HostClient("opencode-ai@1.18.33", "opencode", _opencode, _ask_opencode),
    "pi": HostClient("@mariozechner/pi-coding-agent@0.73.1", "pi", _pi, _ask_pi),
}


@dataclass(frozen=True)
class Installed:
    """A host that is ready to run.

    Attributes:
        client: Description of the host.
        program: Path of its program.
        home: Home folder.
        project: Working folder.
        environment: All its environment variables.
        prefix: Words of the command before the program.
        options: Options before the prompt.
    """

    client: HostClient
    program: Path
    home: Path
    project: Path
    environment: Mapping[str, str]
    prefix: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def ask(
        self,
        text: str,
        session_id: str | None = None,
        *,
        codes: Sequence[int] = (0,),
        seconds: float = RUN_SECONDS,
    ) -> str:
        """Send a prompt, and return the output of the host."""
        return self.run(self.command(text, session_id), codes, seconds)

    def command(self, text: str, session_id: str | None = None) -> list[str]:
        """Return the command that sends a prompt."""
        words = self.client.ask(text, session_id)
        return [*self.prefix, str(self.program), *self.options, *words]

    def wait_until_archived(self, text: str) -> None:
        """Wait until the background process of a hook has archived `text`."""
        search = [sys.executable, "-m", "mcp_server_compaction", "search", text, "--kind", "phrase"]
        deadline = time.monotonic() + RUN_SECONDS
        while not json.loads(self.run([*search, "--json"], codes=(0, 1)))["hits"]:
            assert time.monotonic() < deadline, "nothing was archived"

    def run(
        self, command: Sequence[str], codes: Sequence[int] = (0,), seconds: float = RUN_SECONDS
    ) -> str:
        """Run a command in the project folder, and return its output."""
        # The output is a file, because opencode ends before a pipe has taken more than 128 KB.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                command,
                env=dict(self.environment),
                cwd=self.project,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.PIPE,
                timeout=seconds,
                check=False,
            )
            output.seek(0)
            text = output.read().decode("utf-8")
        assert done.returncode in codes, text[-2_000:] + done.stderr.decode("utf-8")[-2_000:]
        return text


def program_of(client: HostClient, folder: Path) -> Path:
    """Return the path of a host's program, which npm installs into `folder` if necessary."""
    source = os.environ.get(SOURCE_VARIABLE)
    if not source:
        pytest.skip(f"{SOURCE_VARIABLE} is not set to a folder with {client.command} or to npm")
    source_folder = folder if source == "npm" else Path(source)
    program = source_folder / "node_modules/.bin" / client.command
    if not program.exists() and source == "npm":
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip(f"{client.command} cannot be installed: npm is missing")
        manifest = source_folder / "package.json"
        if not manifest.exists():  # with a new file npm would remove packages installed before
            manifest.write_text('{"private": true}', "utf-8")
        install = [npm, "install", "--no-audit", "--no-fund", client.package]
        try:
            done = subprocess.run(
                install,
                cwd=source_folder,
                capture_output=True,
                timeout=INSTALL_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"{client.package} was not installed within {INSTALL_SECONDS} seconds")
        if done.returncode != 0:
            pytest.skip(f"npm could not install {client.package}: {done.stderr[-200:]!r}")
    if not program.exists():
        pytest.skip(f"{program} is missing")
    return program


def installed(name: str, program: Path, folder: Path, url: str) -> Installed:
    """Set up a host with a home and a project folder in `folder`, and the model at `url`."""
    home, project = folder / "home", folder / "project"
    home.mkdir()
    project.mkdir()
    client = CLIENTS[name]
    environment = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "NO_PROXY": "127.0.0.1",
        # Requests to other addresses fail.
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "MCP_COMPACTION_ARCHIVE": str(home / "archive"),
        **client.set_up(home, url),
    }
    return Installed(client, program, home, project, environment)

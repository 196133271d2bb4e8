"""The hosts that the server can be registered in: which file, where in it, and in what form."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from context_compaction.errors import SettingsError

from mcp_server_compaction.hosts import Json
from mcp_server_compaction.hosts.config_text import JSON, TOML, YAML_FORMAT, TextFormat

REGISTERED_NAME = "compaction"

ConfigScope: TypeAlias = Literal["user", "project"]
HookStyle: TypeAlias = Literal["groups", "flat", "plugin"]

# Claude Code, Codex and Cursor take seconds, Gemini CLI milliseconds. A hook is done in well under
# one; this only ends one that hangs.
_HOOK_SECONDS = 30


@dataclass(frozen=True, slots=True)
class UserFolders:
    """Where a user's files stand.

    Attributes:
        home: The user's folder.
        project: The folder that a project's configuration belongs to.
        environment: What moves a host's folder, as `CODEX_HOME` does.
        platform: As `sys.platform` names it.
    """

    home: Path
    project: Path
    environment: Mapping[str, str]
    platform: str = sys.platform

    def config_home(self, app: str) -> Path:
        """The folder where a desktop program of this system keeps its settings."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support" / app
        if self.platform == "win32":
            return self.moved("APPDATA", self.home / "AppData" / "Roaming") / app
        return self.xdg_config(app)

    def xdg_config(self, app: str) -> Path:
        """The folder of a program that follows the XDG rules everywhere."""
        return self.moved("XDG_CONFIG_HOME", self.home / ".config") / app

    def moved(self, variable: str, usual: Path) -> Path:
        """The folder that `variable` names, else the usual one."""
        named = self.environment.get(variable)
        return Path(named) if named else usual


def this_user() -> UserFolders:
    """Where the files of this process's user are; the project is the folder it works in."""
    return UserFolders(Path.home(), Path.cwd(), os.environ)


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a host offers to programs that want to act by themselves.

    Attributes:
        events: Its events, each with the tools or sources that it is for, "" for all.
        style: "groups" of handlers with a matcher, a "flat" list, or a "plugin" in JavaScript.
        file: Where they are registered.
        has_milliseconds: Whether its time limits are in milliseconds.
    """

    events: Mapping[str, str]
    style: HookStyle
    file: Callable[[UserFolders, ConfigScope], Path]
    has_milliseconds: bool = False

    @property
    def timeout(self) -> int:
        """The time limit of a hook, in the host's own unit."""
        return _HOOK_SECONDS * (1_000 if self.has_milliseconds else 1)


@dataclass(frozen=True, slots=True)
class Host:
    """One host.

    Attributes:
        name: As the command line takes it.
        title: As people know it.
        section: The table of servers in its file.
        format: That of the file.
        file: Where the file is; None where the host has none for that scope.
        entry: How it writes down a server that is started by a command.
        hooks: What it offers beside; None where it has no hooks.
        after: What the person does next.
        package: Where its own manager of plugins has put this program's package, if it has.
    """

    name: str
    title: str
    section: str
    format: TextFormat
    file: Callable[[UserFolders, ConfigScope], Path | None]
    entry: Callable[[Sequence[str]], dict[str, Json]]
    hooks: Hooks | None = None
    after: str = ""
    package: Callable[[UserFolders], Path | None] = lambda _places: None


def host_named(name: str) -> Host:
    """The host of that name.

    Raises:
        SettingsError: There is none.
    """
    if name not in HOSTS:
        raise SettingsError(f"There is no host {name!r}. Name one of {', '.join(HOSTS)}.")
    return HOSTS[name]


def _plain(command: Sequence[str]) -> dict[str, Json]:
    return {"command": command[0], "args": list(command[1:])}


def _typed(command: Sequence[str]) -> dict[str, Json]:
    return {"type": "stdio", **_plain(command)}


def _codex(command: Sequence[str]) -> dict[str, Json]:
    # Its own limits are 10 and 60 seconds: a cold start on a busy machine, a long compaction.
    return {**_plain(command), "startup_timeout_sec": 20, "tool_timeout_sec": 120}


def _opencode(command: Sequence[str]) -> dict[str, Json]:
    return {"type": "local", "command": list(command), "enabled": True}


def _zed(command: Sequence[str]) -> dict[str, Json]:
    return {"source": "custom", **_plain(command), "env": {}}


def _goose(command: Sequence[str]) -> dict[str, Json]:
    return {
        "enabled": True,
        "type": "stdio",
        "name": REGISTERED_NAME,
        "description": "Finds and reads what has left the context",
        "cmd": command[0],
        "args": list(command[1:]),
        "envs": {},
        "timeout": 120,
    }


def _user_only(
    file: Callable[[UserFolders], Path],
) -> Callable[[UserFolders, ConfigScope], Path | None]:
    return lambda places, scope: file(places) if scope == "user" else None


def _either(
    user: Callable[[UserFolders], Path], project: str
) -> Callable[[UserFolders, ConfigScope], Path]:
    return lambda places, scope: (
        user(places) if scope == "user" else places.project.joinpath(*project.split("/"))
    )


def _claude_folder(places: UserFolders) -> Path:
    return places.moved("CLAUDE_CONFIG_DIR", places.home / ".claude")


def _claude_json(places: UserFolders) -> Path:
    return places.moved("CLAUDE_CONFIG_DIR", places.home) / ".claude.json"


def _claude_plugin(places: UserFolders) -> Path | None:
    listing = _claude_folder(places) / "plugins" / "installed_plugins.json"
    try:
        plugins = json.loads(listing.read_text("utf-8"))["plugins"]
        return Path(plugins[f"{REGISTERED_NAME}@mcp-server-compaction"][0]["installPath"])
    except (OSError, ValueError, LookupError, TypeError):
        return None  # none is installed, or by a version that notes it elsewhere


def _gemini_extension(places: UserFolders) -> Path | None:
    folder = places.home / ".gemini" / "extensions" / REGISTERED_NAME
    return folder if folder.is_dir() else None


def _codex_folder(places: UserFolders) -> Path:
    return places.moved("CODEX_HOME", places.home / ".codex")


def _opencode_file(places: UserFolders, scope: ConfigScope) -> Path:
    """The one that is there: opencode reads both endings."""
    folder = places.xdg_config("opencode") if scope == "user" else places.project
    commented = folder / "opencode.jsonc"
    return commented if commented.exists() else folder / "opencode.json"


def _opencode_plugin(places: UserFolders, scope: ConfigScope) -> Path:
    folder = places.xdg_config("opencode") if scope == "user" else places.project / ".opencode"
    return folder / "plugins" / "mcp-server-compaction.js"


def _goose_file(places: UserFolders) -> Path:
    if places.platform == "win32":
        return places.config_home("Block") / "goose" / "config" / "config.yaml"
    return places.xdg_config("goose") / "config.yaml"


def _zed_file(places: UserFolders) -> Path:
    if places.platform == "win32":
        return places.config_home("Zed") / "settings.json"
    return places.xdg_config("zed") / "settings.json"


_HOSTS = (
    Host(
        name="claude-desktop",
        title="Claude Desktop",
        section="mcpServers",
        format=JSON,
        file=_user_only(lambda places: places.config_home("Claude") / "claude_desktop_config.json"),
        entry=_plain,
        after="Quit Claude Desktop and start it again.",
    ),
    Host(
        name="claude-code",
        title="Claude Code",
        section="mcpServers",
        format=JSON,
        file=_either(_claude_json, ".mcp.json"),
        entry=_typed,
        hooks=Hooks(
            events={
                "PostToolUse": "Bash|Read|Grep|WebFetch|mcp__.*",
                "UserPromptSubmit": "",
                "SessionStart": "compact|resume",
                "PreCompact": "",
                "Stop": "",
                "SessionEnd": "",
            },
            style="groups",
            file=_either(
                lambda places: _claude_folder(places) / "settings.json", ".claude/settings.json"
            ),
        ),
        after="Start a new session of Claude Code; /mcp lists it.",
        package=_claude_plugin,
    ),
    Host(
        name="codex",
        title="Codex",
        section="mcp_servers",
        format=TOML,
        file=_either(lambda places: _codex_folder(places) / "config.toml", ".codex/config.toml"),
        entry=_codex,
        hooks=Hooks(
            events={
                "PostToolUse": "Bash|mcp__.*",
                "UserPromptSubmit": "",
                "SessionStart": "compact|resume",
                "PreCompact": "",
                "Stop": "",
            },
            style="groups",
            file=_either(lambda places: _codex_folder(places) / "hooks.json", ".codex/hooks.json"),
        ),
        after="Start a new session of Codex. It runs new hooks only after you allow them: /hooks.",
    ),
    Host(
        name="cursor",
        title="Cursor",
        section="mcpServers",
        format=JSON,
        file=_either(lambda places: places.home / ".cursor" / "mcp.json", ".cursor/mcp.json"),
        entry=_plain,
        hooks=Hooks(
            events={
                "postToolUse": "^MCP:",
                "beforeSubmitPrompt": "",
                "preCompact": "",
                "stop": "",
                "sessionEnd": "",
            },
            style="flat",
            file=_either(
                lambda places: places.home / ".cursor" / "hooks.json", ".cursor/hooks.json"
            ),
        ),
        after="Allow the server in Cursor's settings, under MCP.",
    ),
    Host(
        name="vscode",
        title="VS Code",
        section="servers",
        format=JSON,
        file=_either(
            lambda places: places.config_home("Code") / "User" / "mcp.json", ".vscode/mcp.json"
        ),
        entry=_typed,
        after="Run `MCP: List Servers` in VS Code and start it.",
    ),
    Host(
        name="gemini-cli",
        title="Gemini CLI",
        section="mcpServers",
        format=JSON,
        file=_either(
            lambda places: places.home / ".gemini" / "settings.json", ".gemini/settings.json"
        ),
        entry=_plain,
        hooks=Hooks(
            events={
                "AfterTool": "run_shell_command|read_file|read_many_files|web_fetch|mcp_.*",
                "BeforeAgent": "",
                "SessionStart": "resume",
                "PreCompress": "",
                "AfterAgent": "",
                "SessionEnd": "",
            },
            style="groups",
            file=_either(
                lambda places: places.home / ".gemini" / "settings.json", ".gemini/settings.json"
            ),
            has_milliseconds=True,
        ),
        after="Start Gemini CLI in a trusted folder; /mcp lists it.",
        package=_gemini_extension,
    ),
    Host(
        name="opencode",
        title="opencode",
        section="mcp",
        format=JSON,
        file=_opencode_file,
        entry=_opencode,
        hooks=Hooks(events={}, style="plugin", file=_opencode_plugin),
        after="Start opencode anew; `opencode mcp list` lists it.",
    ),
    Host(
        name="zed",
        title="Zed",
        section="context_servers",
        format=JSON,
        file=_either(_zed_file, ".zed/settings.json"),
        entry=_zed,
        after="Zed starts it by itself; the agent panel's settings show it.",
    ),
    Host(
        name="windsurf",
        title="Windsurf",
        section="mcpServers",
        format=JSON,
        file=_user_only(lambda places: places.home / ".codeium" / "windsurf" / "mcp_config.json"),
        entry=_plain,
        after="Refresh the MCP servers in Windsurf's Cascade panel.",
    ),
    Host(
        name="goose",
        title="Goose",
        section="extensions",
        format=YAML_FORMAT,
        file=_user_only(_goose_file),
        entry=_goose,
        after="Start a new session of Goose.",
    ),
)

HOSTS: Mapping[str, Host] = {host.name: host for host in _HOSTS}

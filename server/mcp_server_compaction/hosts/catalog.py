"""The hosts that the server can be registered in, as `hosts.toml` describes them."""

import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Literal, TypeAlias

from mcp_server_compaction.hosts import Json

REGISTERED_NAME = "compaction"

ConfigScope: TypeAlias = Literal["user", "project"]
HookStyle: TypeAlias = Literal["groups", "flat", "plugin"]


@dataclass(frozen=True, slots=True)
class UserFolders:
    """The folders of one user.

    Attributes:
        home: The user's folder.
        project: The folder that a project's configuration belongs to.
        environment: Variables that move a host's folder, such as `CODEX_HOME`.
        platform: As `sys.platform` names it.
    """

    home: Path
    project: Path
    environment: Mapping[str, str]
    platform: str = sys.platform

    def moved(self, variable: str, usual: Path) -> Path:
        """The folder that `variable` names, else the usual one."""
        named = self.environment.get(variable)
        return Path(named) if named else usual

    def file(self, template: str) -> Path:
        """The path of a template of `hosts.toml`."""
        name, _, rest = template.partition("/")
        return self._folder(name.strip("{}")) / rest

    def _folder(self, name: str) -> Path:
        xdg = self.moved("XDG_CONFIG_HOME", self.home / ".config")
        match name:
            case "project":
                return self.project
            case "xdg":
                return xdg
            case "claude":
                return self.moved("CLAUDE_CONFIG_DIR", self.home / ".claude")
            case "claude_json":
                return self.moved("CLAUDE_CONFIG_DIR", self.home)
            case "codex":
                return self.moved("CODEX_HOME", self.home / ".codex")
            case "app" if self.platform == "darwin":
                return self.home / "Library" / "Application Support"
            case "app" if self.platform == "win32":
                return self.moved("APPDATA", self.home / "AppData" / "Roaming")
            case "app":
                return xdg
            case _:
                return self.home


def this_user() -> UserFolders:
    """The folders of this process's user; the project is the working folder."""
    return UserFolders(Path.home(), Path.cwd(), os.environ)


@dataclass(frozen=True, slots=True)
class Hooks:
    """The hooks of a host.

    Attributes:
        events: By event the tools or sources that it is for; "" for all.
        style: "groups" of handlers with a matcher, a "flat" list, or a "plugin" in JavaScript.
        user: Where they are registered for the user.
        project: Where they are registered for a project.
        timeout: Their time limit, in the host's own unit.
    """

    events: Mapping[str, str]
    style: HookStyle
    user: str
    project: str
    timeout: int = 30

    def file(self, places: UserFolders, scope: ConfigScope) -> Path:
        """The file in which they are registered."""
        return places.file(self.user if scope == "user" else self.project)


@dataclass(frozen=True, slots=True)
class Host:
    """One host.

    Attributes:
        name: As the command line takes it.
        title: As people know it.
        section: The table of servers in its file.
        user: Its file for the user.
        after: The user's next step.
        project: Its file for a project, if it has one.
        user_windows: Its file for the user on Windows, if that one differs.
        format: The format of the file: json, toml or yaml.
        template: How it writes down a server that is started by a command.
        hooks: Its hooks, if it has any.
    """

    name: str
    title: str
    section: str
    user: str
    after: str
    project: str | None = None
    user_windows: str | None = None
    format: str = "json"
    template: Mapping[str, Json] = field(
        default_factory=lambda: {"command": "@program", "args": "@arguments"}
    )
    hooks: Hooks | None = None

    def file(self, places: UserFolders, scope: ConfigScope) -> Path | None:
        """Its configuration file; None where the host has none for that scope."""
        is_windows = scope == "user" and places.platform == "win32"
        own = self.user if scope == "user" else self.project
        template = (self.user_windows if is_windows else None) or own
        if template is None:
            return None
        path = places.file(template)
        commented = path.with_suffix(".jsonc")  # opencode reads both
        return commented if self.name == "opencode" and commented.exists() else path

    def entry(self, command: Sequence[str]) -> dict[str, Json]:
        """How it writes down a server that `command` starts."""
        program, *arguments = command
        values = {"@program": program, "@arguments": arguments, "@words": list(command)}
        return {
            key: values.get(value, value) if isinstance(value, str) else value
            for key, value in self.template.items()
        }


def _hosts() -> dict[str, Host]:
    text = files("mcp_server_compaction.hosts").joinpath("hosts.toml").read_text("utf-8")
    hosts: dict[str, Host] = {}
    for name, described in tomllib.loads(text).items():
        if "entry" in described:
            described["template"] = described.pop("entry")
        if "hooks" in described:
            described["hooks"] = Hooks(**described["hooks"])
        hosts[name] = Host(name, **described)
    return hosts


HOSTS: Mapping[str, Host] = _hosts()

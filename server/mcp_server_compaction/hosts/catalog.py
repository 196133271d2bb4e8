"""Hosts in which the server can be registered, as described in `hosts.toml`."""

import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Literal, TypeAlias

from mcp_server_compaction.hosts import Json

REGISTERED_NAME = "compaction"

ConfigScope: TypeAlias = Literal["user", "project"]
HookStyle: TypeAlias = Literal["groups", "flat", "plugin"]


@dataclass(frozen=True, slots=True)
class UserFolders:
    """Folders in which hosts keep the files of one user.

    Attributes:
        home: Home folder of the user.
        project: Folder of the project, for files with the scope "project".
        environment: Environment variables, some of which move a host's folder (`CODEX_HOME`).
        platform: Operating system, named as in `sys.platform`.
    """

    home: Path
    project: Path
    environment: Mapping[str, str]
    platform: str = sys.platform

    def from_variable(self, variable: str, default: Path) -> Path:
        """Return the folder that an environment variable contains, or the default."""
        folder = self.environment.get(variable)
        return Path(folder) if folder else default

    def in_package(self, pattern: str) -> "UserFolders":
        """Return the folders that a program from the Microsoft Store sees, if it is installed.

        Windows gives such a program a copy of `APPDATA`, which is read before the original.
        """
        local = self.from_variable("LOCALAPPDATA", self.home / "AppData" / "Local")
        copies = [path / "LocalCache" / "Roaming" for path in local.glob(f"Packages/{pattern}")]
        if not copies:
            return self
        folder = str(max(copies, key=Path.exists))
        return replace(self, environment={**self.environment, "APPDATA": folder})

    def file(self, template: str) -> Path:
        """Return the path of a template such as `{codex}/config.toml`.

        Raises:
            KeyError: The template begins with an unknown folder.
        """
        name, _, rest = template.partition("/")
        return self._folder(name.strip("{}")) / rest

    def _folder(self, name: str) -> Path:
        home = self.home
        xdg = self.from_variable("XDG_CONFIG_HOME", home / ".config")
        app_folders = {
            "darwin": home / "Library" / "Application Support",
            "win32": self.from_variable("APPDATA", home / "AppData" / "Roaming"),
        }
        folders = {
            "home": home,
            "project": self.project,
            "xdg": xdg,
            "claude": self.from_variable("CLAUDE_CONFIG_DIR", home / ".claude"),
            "claude_json": self.from_variable("CLAUDE_CONFIG_DIR", home),
            "codex": self.from_variable("CODEX_HOME", home / ".codex"),
            "app": app_folders.get(self.platform, xdg),
        }
        return folders[name]


def this_user() -> UserFolders:
    """Return the folders of the user who runs this process. The project is the current folder."""
    return UserFolders(Path.home(), Path.cwd(), os.environ)


@dataclass(frozen=True, slots=True)
class Hooks:
    """Registration of this program's hooks in one host.

    Attributes:
        events: For each event, the pattern of the tools or kinds of session start that call the
            hook; "" for all.
        style: Form of the registration: "groups" of handlers with a matcher, a "flat" list of
            handlers, or a "plugin" in JavaScript.
        user: Template of the file with the user's hooks.
        project: Template of the file with a project's hooks.
        timeout: Time limit of a hook: in milliseconds for Gemini CLI, in seconds for all others.
        in_bash: Whether the host runs hooks in Bash also on Windows.
    """

    events: Mapping[str, str]
    style: HookStyle
    user: str
    project: str
    timeout: int = 30
    in_bash: bool = False

    def file(self, folders: UserFolders, scope: ConfigScope) -> Path:
        """Return the file in which the hooks are registered."""
        return folders.file(self.user if scope == "user" else self.project)


@dataclass(frozen=True, slots=True)
class Host:
    """A program that can use the server.

    Attributes:
        name: Name of the host on the command line.
        title: Name of the host in texts.
        section: Name of the table of servers in the host's configuration.
        user: Template of the user's configuration file.
        after: Instruction for the user after the server was registered.
        project: Template of a project's configuration file; None if the host has none.
        user_windows: Template of the user's file on Windows; None if it is the same.
        package: Pattern of the name of its package from the Microsoft Store; None if it has none.
        format: Format of the configuration.
        entry: Entry of a server in the configuration. Placeholders are `@program` (first word of
            the command), `@arguments` (list of the other words) and `@words` (list of all words).
        hooks: Registration of hooks; None if the host has no hooks.
    """

    name: str
    title: str
    section: str
    user: str
    after: str
    project: str | None = None
    user_windows: str | None = None
    package: str | None = None
    format: Literal["json", "toml", "yaml"] = "json"
    entry: Mapping[str, Json] = field(
        default_factory=lambda: {"command": "@program", "args": "@arguments"}
    )
    hooks: Hooks | None = None

    def file(self, folders: UserFolders, scope: ConfigScope) -> Path | None:
        """Return the configuration file; None if the host has none for this scope."""
        template = self.user if scope == "user" else self.project
        if scope == "user" and folders.platform == "win32":
            template = self.user_windows or template
            folders = folders.in_package(self.package) if self.package else folders
        if template is None:
            return None
        path = folders.file(template)
        with_comments = path.with_suffix(".jsonc")  # opencode reads both; change the one there is
        return with_comments if self.name == "opencode" and with_comments.exists() else path

    def entry_for(self, command: Sequence[str]) -> dict[str, Json]:
        """Return the configuration's entry of a server that `command` starts.

        `command` has at least one word, the program.
        """
        program, *arguments = command
        values = {"@program": program, "@arguments": arguments, "@words": list(command)}
        return {
            key: values.get(value, value) if isinstance(value, str) else value
            for key, value in self.entry.items()
        }


def _hosts() -> dict[str, Host]:
    text = files("mcp_server_compaction.hosts").joinpath("hosts.toml").read_text("utf-8")
    hosts: dict[str, Host] = {}
    for name, fields in tomllib.loads(text).items():
        hooks = fields.pop("hooks", None)
        hosts[name] = Host(name, **fields, hooks=Hooks(**hooks) if hooks else None)
    return hosts


HOSTS: Mapping[str, Host] = _hosts()


def installed_hosts(folders: UserFolders) -> list[Host]:
    """Return the hosts whose configuration exists, or whose own folder does."""
    found: list[Host] = []
    for host in HOSTS.values():
        places = [host.file(folders, "user")]
        if host.hooks:
            places.append(host.hooks.file(folders, "user"))
        shared = {folders.home, folders.home.parent, folders.file("{xdg}/x").parent}
        if any(
            p and (p.exists() or (p.parent.exists() and p.parent not in shared)) for p in places
        ):
            found.append(host)
    return found

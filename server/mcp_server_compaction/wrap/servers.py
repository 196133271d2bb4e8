"""The servers that `wrap` serves, and the file that lists them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from context_compaction import SettingsError

from mcp_server_compaction.hosts import Json
from mcp_server_compaction.hosts.config_text import value_of
from mcp_server_compaction.hosts.hook_events import as_list, as_object

SECTION = "mcpServers"
# Separates the name of a server from the name of its tool or prompt.
SEPARATOR = "__"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9-]+")


@dataclass(frozen=True, slots=True)
class WrappedServer:
    """A server behind the proxy. It has either a command or a URL.

    Attributes:
        command: Command that starts the server, which then uses stdio.
        url: Address at which the server uses Streamable HTTP.
        headers: Headers of every HTTP request.
        name: Name before the names of its tools and prompts. Empty for the only server, whose names
            do not change.
        env: Environment variables of the command, in addition to those of this process.
        cwd: Working folder of the command; None for the folder of this process.
    """

    command: Sequence[str] = ()
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    name: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str | None = None

    @property
    def title(self) -> str:
        """The server in messages."""
        return f"server {self.name!r}" if self.name else "wrapped server"


def read_servers(path: Path, names: Sequence[str] = ()) -> tuple[list[WrappedServer], list[str]]:
    """Return the named servers in a file, or all, and a sentence for each name that had to change.

    The file has the form of Claude Desktop's configuration. A name keeps its letters, digits and
    hyphens; everything else becomes `_`, so that the first `__` ends the name of the server.

    Raises:
        SettingsError: The file cannot be read, lists no server or not the named one, or lists one
            without command and URL.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = f"Cannot read the servers in {path}: {error}. Pass a JSON file with {SECTION!r}."
        raise SettingsError(problem) from error
    entries = as_object(value_of("json", text, path).get(SECTION))
    if not entries:
        raise SettingsError(f"{path} has no {SECTION!r} with a server. Add one server or more.")
    if unknown := set(names) - entries.keys():
        known = ", ".join(entries)
        raise SettingsError(f"{path} has no server {min(unknown)!r}. Its servers are: {known}.")
    servers: dict[str, WrappedServer] = {}
    notes: list[str] = []
    for listed in names or entries:
        base = name = _NOT_IN_NAMES.sub("_", listed).strip("_") or "server"
        while name in servers:
            name = f"{base}-{len(servers) + 1}"
        if name != listed:
            notes.append(f"The tools of {listed!r} are named {name}{SEPARATOR}TOOL.")
        servers[name] = replace(server_of(listed, entries[listed]), name=name)
    return [*servers.values()], notes


def command_in(entry: Json) -> list[str]:
    """Return the command in an entry of a host's configuration; an empty list if it has none."""
    fields = as_object(entry)
    program = fields.get("command", fields.get("cmd"))
    words = as_list(program) or ([program] if isinstance(program, str) else [])
    return [str(word) for word in [*words, *as_list(fields.get("args"))]] if words else []


def variables_in(entry: Json) -> dict[str, str]:
    """Return the environment variables in an entry of a host's configuration."""
    fields = as_object(entry)
    variables = fields.get("env") or fields.get("envs") or fields.get("environment")
    return {key: str(value) for key, value in as_object(variables).items()}


def server_of(name: str, entry: Json) -> WrappedServer:
    """Return the server that an entry of a host's configuration describes.

    Raises:
        SettingsError: The entry has no command and no URL, or only its host can start the server.
    """
    fields = as_object(entry)
    words = command_in(fields)
    url = next((fields[key] for key in ("url", "serverUrl", "uri") if key in fields), None)
    problem = ""
    if not words and not isinstance(url, str):
        problem = "has neither a command nor a URL"
    elif fields.get("type") == "sse":
        problem = "uses the transport SSE, which is obsolete"
    elif "envFile" in fields or "${" in str(entry):
        problem = "has variables (${…} or envFile) that only its host can read"
    if problem:
        raise SettingsError(f"The server {name!r} {problem}. It cannot be wrapped.")
    headers = {key: str(value) for key, value in as_object(fields.get("headers")).items()}
    cwd = str(fields["cwd"]) if fields.get("cwd") else None
    url = None if words else str(url)
    return WrappedServer(words, url, headers, name, variables_in(fields), cwd)

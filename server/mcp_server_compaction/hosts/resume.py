"""A compacted conversation as a session that its host continues, beside the original.

The original is never touched: the new file has a name of its own, comes into being whole, and
replaces nothing.
"""

import json
import shlex
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from context_compaction import (
    WRITERS,
    JsonObject,
    NewSession,
    PathNotAllowedError,
    Roots,
    SettingsError,
    make_folder,
    put_file,
)

from mcp_server_compaction.hosts.catalog import UserFolders
from mcp_server_compaction.hosts.session_places import place_for

RESUME_FORMATS = {
    "claude-code": "anthropic",
    "codex": "openai-responses",
    "pi": "pi",
    "opencode": "anthropic",
}
"""The hosts whose sessions can be written, and the format of their messages."""

_COMMANDS = {
    "claude-code": "claude --resume {id}",
    "codex": "codex resume {id}",
    "pi": "pi --session {id}",
    "opencode": "opencode import {path} && opencode --session {id}",
}
_MOST_TITLE_CHARS = 80


@dataclass(frozen=True, slots=True)
class Resumable:
    """A session that was written: its file, its name, and the line that continues it."""

    path: Path
    session_id: str
    command: str


def write_resumable(
    host: str,
    messages: Sequence[JsonObject],
    *,
    origin: str,
    tokens: int,
    places: UserFolders,
    title: str = "",
    model: str | None = None,
    provider: str | None = None,
    cwd: str | None = None,
    within: Roots | None = None,
) -> Resumable:
    """Write a session that `host` continues with `messages`.

    Args:
        host: One of `RESUME_FORMATS`.
        messages: In that format.
        origin: The archived session that goes on in it.
        tokens: What the messages take, by estimate.
        places: Where the user's files stand.
        title: Of the session.
        model: The model that was used last.
        provider: The provider of that model, as the source names it.
        cwd: The folder of the session; the project, where it is not on this machine.
        within: The folders that may be written to; None for any.

    Raises:
        PathNotAllowedError: The host keeps its sessions outside `within`.
        SettingsError: The file cannot be written.
    """
    folder = cwd if cwd is not None and Path(cwd).is_dir() else str(places.project)
    session_id = str(uuid.uuid4())
    if host == "opencode":
        session_id = f"ses_{session_id.replace('-', '')[:26]}"
    new = NewSession(
        session_id=session_id,
        origin=origin,
        cwd=folder,
        seconds=time.time(),
        tokens=tokens,
        title=f"{title[:_MOST_TITLE_CHARS]} (compacted)".lstrip(),
        model=model,
        provider=provider,
    )
    path = place_for(host, session_id, folder, places)
    if within is not None:
        _check_within(path, within)
    rows = WRITERS[host](messages, new)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    try:
        make_folder(path.parent)
        put_file(path, lines.encode("ascii"))  # its name is new: nothing is replaced
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be written: {error.strerror or error}. The original is as it was."
        ) from error
    command = _COMMANDS[host].format(id=session_id, path=shlex.quote(str(path)))
    if folder != str(places.project):
        command = f"cd {shlex.quote(folder)} && {command}"
    return Resumable(path, session_id, command)


def _check_within(path: Path, roots: Roots) -> None:
    resolved = path.resolve()
    if not any(resolved.is_relative_to(folder) for folder in roots.folders):
        raise PathNotAllowedError(
            f"{path.parent} lies outside the folders that may be written to. Use the command line "
            "(mcp-server-compaction compact --resume), or add a root where the server is started."
        )

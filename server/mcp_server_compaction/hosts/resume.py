"""Write a compacted conversation as a new session file that a host can continue.

The original session is never changed: the new file has a new name and replaces no other file.
"""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from context_compaction.system import command_line

from mcp_server_compaction.hosts.catalog import UserFolders
from mcp_server_compaction.hosts.session_places import new_session_file

RESUME_FORMATS = {
    "claude-code": "anthropic",
    "codex": "openai-responses",
    "pi": "pi",
    "opencode": "anthropic",
}
"""Format of the messages for each host whose sessions can be written."""

_COMMANDS = {
    "claude-code": "claude --resume {id}",
    "codex": "codex resume {id}",
    "pi": "pi --session {id}",
    "opencode": "opencode import {path} && opencode --session {id}",
}


@dataclass(frozen=True, slots=True)
class Resumable:
    """A written session.

    Attributes:
        path: Path of the session file.
        session_id: ID of the session in the host.
        command: Shell command that continues the session.
    """

    path: Path
    session_id: str
    command: str


def write_resumable(
    host: str,
    messages: Sequence[JsonObject],
    session: NewSession,
    folders: UserFolders,
    within: Roots | None = None,
) -> Resumable:
    """Write a session that `host` continues with `messages`.

    Args:
        host: A key of `RESUME_FORMATS`.
        messages: Messages in the format of the host.
        session: Its metadata. The ID is chosen here. The project replaces a working folder that
            does not exist here.
        folders: Folders of the user.
        within: Folders that may be written to; None for all.

    Raises:
        PathNotAllowedError: The sessions of the host are outside `within`.
        SettingsError: The file cannot be written.
    """
    folder = session.cwd if session.cwd and Path(session.cwd).is_dir() else str(folders.project)
    session_id = str(uuid.uuid4())
    if host == "opencode":
        session_id = f"ses_{session_id.replace('-', '')[:26]}"
    session = replace(session, session_id=session_id, cwd=folder)
    path = new_session_file(host, session_id, folder, folders)
    if within is not None and not any(map(path.resolve().is_relative_to, within.folders)):
        raise PathNotAllowedError(
            f"{path.parent} is outside the folders that may be written to. Use the command line "
            "(mcp-server-compaction compact --resume), or start the server with --root DIR."
        )
    lines = "".join(json.dumps(row) + "\n" for row in WRITERS[host](messages, session))
    try:
        make_folder(path.parent)
        put_file(path, lines.encode("ascii"))
    except OSError as error:
        raise SettingsError(
            f"Cannot write {path}: {error.strerror or error}. The original session is unchanged."
        ) from error
    command = _COMMANDS[host].format(id=session_id, path=command_line([str(path)]))
    if folder != str(folders.project):
        command = f"cd {command_line([folder])} && {command}"
    return Resumable(path, session_id, command)

"""Session files of hosts: find the current one, and write a new one that a host can continue.

The original session is never changed: a new file has a new name and replaces no other file.
"""

import json
import re
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from context_compaction import (
    WRITERS,
    JsonObject,
    NewSession,
    NotFoundError,
    PathNotAllowedError,
    Roots,
    SettingsError,
    make_folder,
    put_file,
)
from context_compaction.formats.session_files.model import MARK
from context_compaction.system import command_line

from mcp_server_compaction.hosts.catalog import UserFolders
from mcp_server_compaction.hosts.hook_events import archived_id_in_line

CURRENT = "current"

# Codex keeps the sessions of all projects in one folder. The current one is among the newest.
_CODEX_FILES = 200
# Claude Code shortens longer folder names and appends a hash.
_FOLDER_NAME_CHARS = 200
# Format of the messages for each host whose sessions can be written.
RESUME_FORMATS = {
    "claude-code": "anthropic",
    "codex": "openai-responses",
    "pi": "pi",
    "opencode": "anthropic",
}
_COMMANDS = {
    "claude-code": "claude --resume {id}",
    "codex": "codex resume {id}",
    "pi": "pi --session {id}",
    "opencode": "opencode import {path} && opencode --session {id}",
}


def current_transcript(folders: UserFolders) -> Path:
    """Return the newest session file of the project, of any host.

    Files that `resume` wrote are skipped until their host adds a line.

    Raises:
        NotFoundError: No host has a session of this project.
    """
    files = [*_claude_code_files(folders), *_pi_files(folders), *_codex_files(folders)]
    for path in sorted(files, key=_modified_seconds, reverse=True):
        if not _is_unused(path):
            return path
    unused = f", except {len(files)} that `--resume` wrote and no host has continued yet"
    raise NotFoundError(
        f"No host has a transcript of {folders.project}{unused if files else ''}. Run this command "
        "in the folder of the session, or pass the path of the session file."
    )


def new_session_file(host: str, session_id: str, cwd: str, folders: UserFolders) -> Path:
    """Return the path at which a host looks for a session.

    Args:
        host: "claude-code", "codex", "pi" or "opencode". opencode must import the file.
        session_id: ID of the session.
        cwd: Working folder of the session.
        folders: Folders of the user.

    Raises:
        SettingsError: Claude Code's folder for the session is unknown.
    """
    now = datetime.now().astimezone()
    root = sessions_folder(host, folders)
    if host == "codex":
        return root / f"{now:%Y/%m/%d}/rollout-{now:%Y-%m-%dT%H-%M-%S}-{session_id}.jsonl"
    if host == "opencode":
        return root / f"{session_id}.json"
    if host == "pi":
        return _pi_folder(root, cwd) / f"{now:%Y-%m-%dT%H-%M-%S}-000Z_{session_id}.jsonl"
    folder = _claude_code_folder(root, cwd)
    if folder is None:
        raise SettingsError(
            f"Claude Code has no sessions of {cwd} yet, and the path is too long to derive their "
            "folder. Start Claude Code there once, then run this command again."
        )
    return folder / f"{session_id}.jsonl"


def sessions_folder(host: str, folders: UserFolders) -> Path:
    """Return the folder with all session files of a host."""
    data = folders.from_variable("XDG_DATA_HOME", folders.home / ".local/share")
    pi_agent = folders.from_variable("PI_CODING_AGENT_DIR", folders.home / ".pi/agent")
    roots = {
        "claude-code": folders.file("{claude}/projects"),
        "codex": folders.file("{codex}/sessions"),
        "opencode": data / "opencode/compacted",
        "pi": folders.from_variable("PI_CODING_AGENT_SESSION_DIR", pi_agent / "sessions"),
    }
    return roots[host]


def archived_id_of(session_id: str, folders: UserFolders) -> str | None:
    """Return the ID of the archived session that continues under the ID of a resumed session.

    None if `resume` wrote no session with this ID.
    """
    if not re.fullmatch(r"[\w-]+", session_id):
        return None
    patterns = {
        "claude-code": f"*/{session_id}.jsonl",
        "codex": f"*/*/*/rollout-*-{session_id}.jsonl",
        "pi": f"*/*_{session_id}.jsonl",
        "opencode": f"{session_id}.json",
    }
    for host, pattern in patterns.items():
        for path in _session_files(sessions_folder(host, folders), pattern):
            if archived_id := archived_id_in_line(_first_line(path)):
                return archived_id
    return None


def _session_files(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield the files that match. Codex compresses the files of sessions that rest."""
    yield from folder.glob(pattern)
    yield from folder.glob(f"{pattern}.zst")


def _claude_code_folder(root: Path, cwd: str) -> Path | None:
    name = re.sub(r"[^a-zA-Z0-9]", "-", cwd)
    if len(name) <= _FOLDER_NAME_CHARS:
        return root / name
    return next(root.glob(f"{name[:_FOLDER_NAME_CHARS]}-*"), None)


def _claude_code_files(folders: UserFolders) -> list[Path]:
    root = sessions_folder("claude-code", folders)
    folder = _claude_code_folder(root, str(folders.project))
    files = _session_files(folder, "*.jsonl") if folder else ()
    return [path for path in files if not path.name.startswith("agent-")]


def _pi_folder(root: Path, cwd: str) -> Path:
    name = re.sub(r"[/\\:]", "-", re.sub(r"^[/\\]", "", cwd))
    return root / f"--{name}--"


def _pi_files(folders: UserFolders) -> Iterator[Path]:
    folder = _pi_folder(sessions_folder("pi", folders), str(folders.project))
    return _session_files(folder, "*.jsonl")


def _codex_files(folders: UserFolders) -> list[Path]:
    files = _session_files(sessions_folder("codex", folders), "*/*/*/rollout-*.jsonl")
    newest = sorted(files, key=_modified_seconds, reverse=True)[:_CODEX_FILES]
    return [path for path in newest if _codex_cwd(path) == str(folders.project)]


def _codex_cwd(path: Path) -> str | None:
    try:
        cwd = json.loads(_first_line(path))["payload"]["cwd"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return cwd if isinstance(cwd, str) else None


def _modified_seconds(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # deleted after it was listed
        return 0.0


def _is_unused(path: Path) -> bool:
    """Whether `resume` wrote the last line, so that no host has continued the session."""
    last = deque(_lines(path), maxlen=1)
    return not last or f'"{MARK}":'.encode() in last[0]


def _first_line(path: Path) -> bytes:
    return next(_lines(path), b"")


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the decompressed lines of a file. Stop where it cannot be read."""
    try:
        with path.open("rb") as file:
            yield from _decompressed_lines(file) if path.suffix == ".zst" else file
    except OSError:  # deleted after it was listed, or not readable
        return


def _decompressed_lines(file: BinaryIO) -> Iterator[bytes]:
    # Imported here because few hosts compress their files.
    import zstandard

    reader: Any = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    try:
        yield from BufferedReader(reader)
    except zstandard.ZstdError:  # damaged
        return


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

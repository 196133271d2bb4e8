"""Where hosts keep the files of their sessions: the newest of a folder, and a place for more."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from context_compaction import NotFoundError, SettingsError
from context_compaction.formats.session_files.rows import MARK

from mcp_server_compaction.hosts.catalog import UserFolders
from mcp_server_compaction.hosts.hook_events import origin_in

CURRENT = "current"

# Codex keeps the sessions of all folders together; of more than these nobody is in the middle.
_CODEX_FILES = 200
_HEAD_BYTES = 256 * 1024
_TAIL_BYTES = 1024 * 1024
# Claude Code adds a hash of its own to names of folders beyond this.
_MOST_SLUG_CHARS = 200


def current_transcript(places: UserFolders) -> Path:
    """The newest session file of the project, of whatever host.

    What `resume` wrote and no host has continued yet is passed over: it is nobody's session.

    Raises:
        NotFoundError: No host has one.
    """
    files = [*_claude_code_files(places), *_pi_files(places), *_codex_files(places)]
    for path in sorted(files, key=_modified, reverse=True):
        if not _is_untouched(path):
            return path
    raise NotFoundError(
        f"No host keeps a transcript of {places.project}. Start in the folder where the session "
        "ran, or name its file."
    )


def place_for(host: str, session_id: str, cwd: str, places: UserFolders) -> Path:
    """The file in which a host looks for a session of the folder `cwd`.

    Args:
        host: "claude-code", "codex", "pi" or "opencode", which is to import it from there.
        session_id: The session.
        cwd: The folder that it works in.
        places: The user's folders.

    Raises:
        SettingsError: Claude Code's name of the folder is unknown.
    """
    now = datetime.now().astimezone()
    root = root_of(host, places)
    if host == "codex":
        name = f"rollout-{now:%Y-%m-%dT%H-%M-%S}-{session_id}.jsonl"
        return root / f"{now:%Y}" / f"{now:%m}" / f"{now:%d}" / name
    if host == "opencode":
        return root / f"{session_id}.json"
    if host == "pi":
        return _pi_folder(root, cwd) / f"{now:%Y-%m-%dT%H-%M-%S}-000Z_{session_id}.jsonl"
    folder = _claude_code_folder(root, cwd)
    if folder is None:
        raise SettingsError(
            f"Claude Code has no sessions of {cwd} yet, and its name is too long to tell where "
            "they would be. Start Claude Code there once."
        )
    return folder / f"{session_id}.jsonl"


def root_of(host: str, places: UserFolders) -> Path:
    """The folder of all sessions of a host."""
    home = places.home
    match host:
        case "claude-code":
            return places.moved("CLAUDE_CONFIG_DIR", home / ".claude") / "projects"
        case "codex":
            return places.moved("CODEX_HOME", home / ".codex") / "sessions"
        case "opencode":
            return places.moved("XDG_DATA_HOME", home / ".local/share") / "opencode/compacted"
        case _:
            agent = places.moved("PI_CODING_AGENT_DIR", home / ".pi" / "agent")
            return places.moved("PI_CODING_AGENT_SESSION_DIR", agent / "sessions")


def continued_by(session_id: str, places: UserFolders) -> str | None:
    """The archived session that continues under a name that `resume` gave; None if it gave none."""
    if not re.fullmatch(r"[\w-]+", session_id):
        return None
    names = {
        "claude-code": f"*/{session_id}.jsonl",
        "codex": f"*/*/*/rollout-*-{session_id}.jsonl",
        "pi": f"*/*_{session_id}.jsonl",
        "opencode": f"{session_id}.json",
    }
    files = (path for host, name in names.items() for path in root_of(host, places).glob(name))
    return next(filter(None, map(origin_in, files)), None)


def _claude_code_folder(root: Path, cwd: str) -> Path | None:
    name = re.sub(r"[^a-zA-Z0-9]", "-", cwd)
    if len(name) <= _MOST_SLUG_CHARS:
        return root / name
    return next(root.glob(f"{name[:_MOST_SLUG_CHARS]}-*"), None)


def _claude_code_files(places: UserFolders) -> list[Path]:
    folder = _claude_code_folder(root_of("claude-code", places), str(places.project))
    found = folder.glob("*.jsonl") if folder else ()
    return [path for path in found if not path.name.startswith("agent-")]


def _pi_folder(root: Path, cwd: str) -> Path:
    name = re.sub(r"[/\\:]", "-", re.sub(r"^[/\\]", "", cwd))
    return root / f"--{name}--"


def _pi_files(places: UserFolders) -> Iterator[Path]:
    return _pi_folder(root_of("pi", places), str(places.project)).glob("*.jsonl")


def _codex_files(places: UserFolders) -> list[Path]:
    found = root_of("codex", places).glob("*/*/*/rollout-*.jsonl")
    newest = sorted(found, key=_modified, reverse=True)[:_CODEX_FILES]
    return [path for path in newest if _codex_cwd(path) == str(places.project)]


def _codex_cwd(path: Path) -> str | None:
    with path.open("rb") as file:
        head = file.readline(_HEAD_BYTES)
    try:
        cwd = json.loads(head)["payload"]["cwd"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return cwd if isinstance(cwd, str) else None


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # deleted since it was listed
        return 0.0


def _is_untouched(path: Path) -> bool:
    """Whether the last line is one that `resume` wrote: no host has added any."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return True
    return not lines or f'"{MARK}":'.encode() in lines[-1]

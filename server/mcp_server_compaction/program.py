"""Command that starts this program, and place of its archive. Light, because hooks import it."""

import shutil
import sys
from hashlib import blake2b
from pathlib import Path

from context_compaction import SettingsError
from context_compaction.system import command_line, user_folder

ARCHIVE_VARIABLE = "MCP_COMPACTION_ARCHIVE"
_AS_MODULE = [sys.executable, "-m", "mcp_server_compaction"]
_SCHEMES = ("postgresql", "postgres")
_FIX = f"Name a folder with --archive or {ARCHIVE_VARIABLE}."
SCRIPT = "mcp-server-compaction"


def archive_place(name: str | None) -> tuple[Path, str | None]:
    """Return the local folder of an archive, and its address if it is a database.

    Args:
        name: Folder or address. None for the default folder.

    Raises:
        SettingsError: The name is a file or an address with an unknown scheme.
    """
    if name and "://" in name:
        scheme = name.partition("://")[0]
        if scheme not in _SCHEMES:
            raise SettingsError(
                f"Unknown archive address {scheme}://…. Name a folder or postgresql://… with "
                f"--archive or {ARCHIVE_VARIABLE}."
            )
        return user_folder("data") / "remote" / _key_of(name), name
    folder = Path(name).expanduser().absolute() if name else user_folder("data")
    try:
        is_taken = name and folder.exists() and not folder.is_dir()
    except OSError as error:  # The file system does not allow this name.
        raise SettingsError(f"Cannot use {folder} as archive: {error.strerror}. {_FIX}") from error
    if is_taken:
        raise SettingsError(f"Cannot use {folder} as archive: it is not a folder. {_FIX}")
    return folder, None


def _key_of(address: str) -> str:
    """Return a key of an address that does not depend on its user and password.

    Local notes on one archive, for example how far a file is imported, must never apply to another.
    """
    location, mark, settings = address.partition("://")[2].partition("?")
    return blake2b(
        f"{location.rpartition('@')[2]}{mark}{settings}".encode(), digest_size=16
    ).hexdigest()


def own_command() -> str:
    """Return the name of this program, or how it was called if `PATH` does not contain it.

    A program in a virtual environment is called by its path, so its name alone is not found.
    """
    if shutil.which(SCRIPT):
        return SCRIPT
    if Path(sys.argv[0]).stem == SCRIPT:
        return command_line([sys.argv[0]])
    return command_line(_AS_MODULE)


def this_program() -> list[str]:
    """Return a command that starts this program without a search in `PATH`."""
    script = shutil.which(SCRIPT, path=Path(sys.executable).parent) or shutil.which(SCRIPT)
    return [str(Path(script).absolute())] if script else _AS_MODULE

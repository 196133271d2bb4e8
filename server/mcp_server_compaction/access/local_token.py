"""The token of one user's archive: in a file of the user's alone, made by the first start."""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from context_compaction.errors import SettingsError

TOKEN_FILE = "http-token"  # noqa: S105, a name
_TOKEN_BYTES = 32


def ensure_token(folder: Path) -> str:
    """The token of the archive in `folder`, made by the first call.

    Raises:
        SettingsError: The file is open to others, empty, or cannot be written.
    """
    path = folder / TOKEN_FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(handle, secrets.token_urlsafe(_TOKEN_BYTES).encode("ascii") + b"\n")
                os.fsync(handle)
            finally:
                os.close(handle)
        status, text = path.stat(), path.read_text("ascii", "replace").strip()
    except OSError as error:
        raise SettingsError(
            f"The token's file {path} cannot be used: {error.strerror}. Pages and HTTP need an "
            "archive that may be written: `migrate SOURCE TARGET` copies one that may be read."
        ) from error
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise SettingsError(
            f"The token's file {path} may be read by others. Delete it, and a new token is made "
            "by the next start."
        )
    if len(text) < _TOKEN_BYTES or not text.isascii():
        raise SettingsError(f"The token's file {path} holds no token. Delete it and start again.")
    return text

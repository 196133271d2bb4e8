"""Access tokens in a folder: one small file each, named by the token's id, which is no secret.

    tokens/1f8e2b7c90aa55ee.json

Everything blocks.
"""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from context_compaction.archive import AccessToken
from context_compaction.archive.local.durable_files import (
    explaining,
    make_folder,
    put_file,
    sync_folder,
)

_FOLDER = "tokens"
_ID = re.compile(r"[0-9a-f]{1,64}")


def keep(root: Path, token: AccessToken) -> None:
    """See `Archive.keep_token`."""
    path = root / _FOLDER / f"{token.token_id}.json"
    with explaining(path, "Writing"):
        make_folder(path.parent)
        put_file(path, json.dumps(asdict(token)).encode("ascii"))


def find(root: Path, token_id: str) -> AccessToken | None:
    """See `Archive.token`."""
    if not _ID.fullmatch(token_id):
        return None
    path = root / _FOLDER / f"{token_id}.json"
    with explaining(path, "Reading"):
        try:
            return _read(path)
        except FileNotFoundError:
            return None


def every(root: Path) -> list[AccessToken]:
    """See `Archive.tokens`."""
    with explaining(root / _FOLDER, "Reading"):
        found = [_read(path) for path in root.joinpath(_FOLDER).glob("[0-9a-f]*.json")]
    return sorted(found, key=lambda token: (token.created_seconds, token.token_id))


def revoke(root: Path, token_id: str) -> bool:
    """See `Archive.revoke_token`."""
    if not _ID.fullmatch(token_id):
        return False
    path = root / _FOLDER / f"{token_id}.json"
    with explaining(path, "Deleting"):
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        sync_folder(path.parent)
    return True


def _read(path: Path) -> AccessToken:
    fields: dict[str, Any] = json.loads(path.read_bytes())
    fields["scopes"] = tuple(fields["scopes"])
    return AccessToken(**fields)

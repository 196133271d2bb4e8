"""The archive that a place names: a folder of this machine, or a database."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, overload

from context_compaction.archive import Archive
from context_compaction.archive.values import shown_address
from context_compaction.errors import SettingsError
from context_compaction.redaction import RedactionMode

if TYPE_CHECKING:
    from context_compaction.archive.local.archive import LocalArchive

_SCHEMES = ("postgresql", "postgres")


@overload
def open_archive(
    location: Path, *, index_root: Path | None = None, redaction: RedactionMode = "off"
) -> "AbstractAsyncContextManager[LocalArchive]": ...
@overload
def open_archive(
    location: Path | str, *, index_root: Path | None = None, redaction: RedactionMode = "off"
) -> AbstractAsyncContextManager[Archive]: ...
def open_archive(
    location: Path | str, *, index_root: Path | None = None, redaction: RedactionMode = "off"
) -> AbstractAsyncContextManager[Archive]:
    """The archive at `location`, made when it is missing; it is closed with the block.

    Args:
        location: A folder, which several processes of a machine may open at once, or
            `postgresql://…` with the extra `postgres`: see docs/how-to/postgresql.md.
        index_root: For a folder, another one on a local disk for search indexes, by default the
            user's cache folder.
        redaction: How secrets are treated: "off" looks for none, "warn" keeps everything as it is
            and has compactions report them, "on" removes them from whatever is written.

    Raises:
        SettingsError: There is no such kind of archive.
        ArchiveError: It cannot be opened.
    """
    if isinstance(location, str) and "://" in location:
        return _open_address(location, redaction)
    from context_compaction.archive.local.archive import open_archive as open_local

    return open_local(Path(location), index_root=index_root, redaction=redaction)


def _open_address(address: str, redaction: RedactionMode) -> AbstractAsyncContextManager[Archive]:
    if address.partition(":")[0] not in _SCHEMES:
        raise SettingsError(
            f"The archive {shown_address(address)} is an address of no kind that is known. Name a "
            "folder, or postgresql://…"
        )
    try:
        from context_compaction.archive.postgres.archive import open_archive as open_postgres
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"An archive in PostgreSQL needs {error.name}. Install mcp-server-compaction[postgres]."
        ) from error
    return open_postgres(address, redaction=redaction)

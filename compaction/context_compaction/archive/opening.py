"""The archive that a place names: a folder of this machine, or a database."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, overload

from context_compaction.archive import Archive
from context_compaction.errors import SettingsError
from context_compaction.redaction import RedactionMode

if TYPE_CHECKING:
    from context_compaction.archive.local.archive import LocalArchive

_ADDRESS_MARK = "://"


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
        location: A folder, which several processes of a machine may open at once.
        index_root: For a folder, another one on a local disk for search indexes, by default the
            user's cache folder.
        redaction: What becomes of secrets: "off" looks for none, "warn" keeps everything as it is
            and has compactions report them, "on" takes them out of whatever is written.

    Raises:
        SettingsError: There is no such kind of archive.
        ArchiveError: It cannot be opened.
    """
    if isinstance(location, str) and is_address(location):
        raise SettingsError(
            f"The archive {shown_address(location)} is an address, which this version cannot use. "
            "Name a folder."
        )
    from context_compaction.archive.local.archive import open_archive as open_local

    return open_local(Path(location), index_root=index_root, redaction=redaction)


def is_address(location: str) -> bool:
    """Whether `location` is an address, and no folder."""
    return _ADDRESS_MARK in location


def shown_address(location: str) -> str:
    """An address without what may be secret in it: name, password, settings."""
    scheme, _, rest = location.partition(_ADDRESS_MARK)
    return f"{scheme}{_ADDRESS_MARK}{rest.rpartition('@')[2].partition('?')[0]}"

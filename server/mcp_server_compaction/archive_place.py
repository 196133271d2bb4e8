"""Where the archive is, as flag or environment name it; light, since every hook reads it."""

from hashlib import blake2b
from pathlib import Path

from context_compaction import SettingsError

ARCHIVE_VARIABLE = "MCP_COMPACTION_ARCHIVE"
_SCHEMES = ("postgresql", "postgres")


def archive_place(named: str | None) -> tuple[Path, str | None]:
    """The folder of an archive, and the address of one that lies elsewhere.

    Raises:
        SettingsError: The place is a file, or an address of no kind that is known.
    """
    if named and "://" in named:
        if named.partition(":")[0] not in _SCHEMES:
            raise SettingsError(
                f"The archive {named.partition('://')[0]}://… is an address of no kind that is "
                f"known. Name a folder or postgresql://… with --archive or {ARCHIVE_VARIABLE}."
            )
        return _user_folder() / "remote" / _key_of(named), named
    folder = Path(named).expanduser().absolute() if named else _user_folder()
    try:
        is_taken = named and folder.exists() and not folder.is_dir()
    except OSError as error:  # a name that no file system takes
        raise SettingsError(
            f"The archive's place {folder} cannot be a folder: {error.strerror}. "
            f"Name a folder with --archive or {ARCHIVE_VARIABLE}."
        ) from error
    if is_taken:
        raise SettingsError(
            f"The archive's place {folder} is not a folder. "
            f"Name a folder with --archive or {ARCHIVE_VARIABLE}."
        )
    return folder, None


def _user_folder() -> Path:
    import platformdirs  # only where the default is needed

    return Path(platformdirs.user_data_dir("mcp-server-compaction", appauthor=False))


def _key_of(address: str) -> str:
    """Names an archive at an address, whatever its user and password are at the moment.

    What is noted of one archive (how far a file is imported) must never be taken for another's.
    """
    place, mark, settings = address.partition("://")[2].partition("?")
    return blake2b(
        f"{place.rpartition('@')[2]}{mark}{settings}".encode(), digest_size=16
    ).hexdigest()

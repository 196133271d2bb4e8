"""What the server is told: flags before environment before defaults, read once and frozen."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from context_compaction.errors import SettingsError
from context_compaction.roots import Roots, default_folders, roots_of

ARCHIVE_VARIABLE = "MCP_COMPACTION_ARCHIVE"
ROOTS_VARIABLE = "MCP_COMPACTION_ROOTS"
POLICY_VARIABLE = "MCP_COMPACTION_POLICY"
MODEL_VARIABLE = "MCP_COMPACTION_MODEL"

NO_ROOTS = Roots()


@dataclass(frozen=True, slots=True)
class Config:
    """How one process serves.

    Attributes:
        archive_folder: Where the archive lies; made when it is first used.
        roots: The folders whose files the tools may read.
        policy: The policy of a call that names none.
        model: The model of a call that names none, for its window and tokenizer.
    """

    archive_folder: Path
    roots: Roots = NO_ROOTS
    policy: str = "default"
    model: str | None = None


def load_config(
    *,
    archive: str | None = None,
    roots: Sequence[str] = (),
    over_http: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> Config:
    """The configuration of this process; `archive` and `roots` are its flags.

    Over HTTP no file is read unless roots are named: the caller may sit elsewhere.

    Raises:
        SettingsError: A named root is no folder, or the archive's place is a file.
    """
    folder = _archive_folder(archive or environment.get(ARCHIVE_VARIABLE))
    return Config(
        archive_folder=folder,
        roots=_roots(roots, environment.get(ROOTS_VARIABLE), over_http=over_http),
        policy=environment.get(POLICY_VARIABLE) or "default",
        model=environment.get(MODEL_VARIABLE) or None,
    )


def _archive_folder(named: str | None) -> Path:
    if not named:
        import platformdirs  # only where the default is needed

        return Path(platformdirs.user_data_dir("mcp-server-compaction", appauthor=False))
    folder = Path(named).expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise SettingsError(
            f"The archive's place {folder} is not a folder. "
            f"Name a folder with --archive or {ARCHIVE_VARIABLE}."
        )
    return folder


def _roots(flags: Sequence[str], variable: str | None, *, over_http: bool) -> Roots:
    named = list(flags) or [part for part in (variable or "").split(os.pathsep) if part]
    for folder in named:
        if not Path(folder).expanduser().is_dir():
            raise SettingsError(
                f"The root {folder} is not a folder. Correct --root or {ROOTS_VARIABLE} "
                f"(several are separated by {os.pathsep!r})."
            )
    if named:
        return roots_of(named)
    return NO_ROOTS if over_http else roots_of(default_folders(Path.cwd(), Path.home()))

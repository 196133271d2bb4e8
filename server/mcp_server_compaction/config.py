"""Configuration of the server, created once from the options of the command line.

click reads each option from a flag, a variable or a file, and checks its form.
"""

import ipaddress
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from context_compaction import Roots, SettingsError, default_folders, roots_of

if TYPE_CHECKING:
    from context_compaction import RedactionMode

from mcp_server_compaction.archive_place import ARCHIVE_VARIABLE as ARCHIVE_VARIABLE
from mcp_server_compaction.archive_place import archive_place

ROOTS_VARIABLE = "MCP_COMPACTION_ROOTS"
POLICY_VARIABLE = "MCP_COMPACTION_POLICY"
MODEL_VARIABLE = "MCP_COMPACTION_MODEL"
SUMMARIZER_VARIABLE = "MCP_COMPACTION_SUMMARIZER"
SUMMARIZER_MODEL_VARIABLE = "MCP_COMPACTION_SUMMARIZER_MODEL"
SUMMARIZER_URL_VARIABLE = "MCP_COMPACTION_SUMMARIZER_URL"
SUMMARIZER_KEY_ENV_VARIABLE = "MCP_COMPACTION_SUMMARIZER_KEY_ENV"
SUMMARIZER_WINDOW_VARIABLE = "MCP_COMPACTION_SUMMARIZER_WINDOW"
SUMMARIZER_TIMEOUT_VARIABLE = "MCP_COMPACTION_SUMMARIZER_TIMEOUT"
REDACTION_VARIABLE = "MCP_COMPACTION_REDACTION"
IMPORT_VARIABLE = "MCP_COMPACTION_IMPORT"

NO_ROOTS = Roots()
# Claude Desktop waits four minutes for a tool, other hosts one or two.
SUMMARY_SECONDS = 120
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")

WriterName: TypeAlias = Literal["auto", "extractive", "host", "model", "sampling"]


@dataclass(frozen=True, slots=True)
class Summaries:
    """Options of summaries. A call can choose one of `models`, but no other address and no key.

    Attributes:
        writer: Writer for calls that do not choose one.
        models: Names of the models that may write. The first one writes for calls that name none.
        url: Address of the models' API. None for the provider's own.
        key_env: Name of the environment variable with the key. None sends no key.
        context_window: Context window of the models, in tokens. None uses the table of models.
        timeout_seconds: Maximum time that one compaction waits for a model.
    """

    writer: WriterName = "auto"
    models: tuple[str, ...] = ()
    url: str | None = None
    key_env: str | None = None
    context_window: int | None = None
    timeout_seconds: float = SUMMARY_SECONDS


@dataclass(frozen=True, slots=True)
class Config:
    """Configuration of a process.

    Attributes:
        archive_folder: Folder of the archive, created on first use. For an archive at an address,
            the folder for local data: import progress, notes of hooks, the token for HTTP.
        roots: Folders whose files the tools may read.
        policy: Policy for calls that do not choose one.
        model: Model for calls that do not name one, for its window and tokenizer.
        summaries: Options of summaries.
        redaction: Treatment of secrets: "off", "warn" or "on".
        imports_sessions: Whether to import sessions that hosts store on disk, at the start of the
            server and before each search.
        archive_address: Address of the archive, which may contain a password. None for a folder.
    """

    archive_folder: Path
    roots: Roots = NO_ROOTS
    policy: str = "default"
    model: str | None = None
    summaries: Summaries = Summaries()
    redaction: "RedactionMode" = "warn"
    imports_sessions: bool = False
    archive_address: str | None = field(default=None, repr=False)

    @property
    def archive(self) -> Path | str:
        """The argument for `open_archive`."""
        return self.archive_address or self.archive_folder


def load_config(
    *,
    archive: str | None = None,
    roots: Sequence[str] = (),
    summarizer: WriterName | None = None,
    summarizer_models: Sequence[str] = (),
    summarizer_url: str | None = None,
    summarizer_key_env: str | None = None,
    summarizer_window: int | None = None,
    summarizer_timeout: float | None = None,
    redaction: "RedactionMode | None" = None,
    imports: str | None = None,
    over_http: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> Config:
    """Return the configuration of this process, from options and environment variables.

    Over HTTP the caller may be another user. Therefore no file is read unless roots are named, and
    no session of this user's hosts is imported.

    Raises:
        SettingsError: A root is not a folder, the archive is a file, the policy does not exist, or
            the name, key or address of a summary model is invalid.
    """
    folder, address = archive_place(archive)
    return Config(
        archive_folder=folder,
        archive_address=address,
        roots=_roots(roots, over_http=over_http),
        policy=_policy(environment.get(POLICY_VARIABLE)),
        model=environment.get(MODEL_VARIABLE) or None,
        summaries=_summaries(
            Summaries(
                writer=summarizer or "auto",
                models=tuple(summarizer_models),
                url=summarizer_url,
                key_env=summarizer_key_env,
                context_window=summarizer_window,
                timeout_seconds=summarizer_timeout or SUMMARY_SECONDS,
            ),
            environment,
        ),
        # A service must not store other users' secrets.
        redaction=redaction or ("on" if over_http else "warn"),
        imports_sessions=imports != "off" and not over_http,
    )


def _summaries(summaries: Summaries, environment: Mapping[str, str]) -> Summaries:
    if not summaries.models:
        if summaries.writer == "model" or summaries.url or summaries.key_env:
            raise SettingsError(
                "The summary writer 'model', --summarizer-url and --summarizer-key-env need a "
                "model. Add --summarizer-model."
            )
        return summaries
    from context_compaction import check_summary_model

    for name in summaries.models:
        check_summary_model(
            name, url=summaries.url, key_env=summaries.key_env, environment=environment
        )
    return summaries


def _policy(name: str | None) -> str:
    if not name:
        return "default"
    from context_compaction import POLICIES  # Importing it loads all layers.

    if name not in POLICIES:
        raise SettingsError(
            f"Unknown policy {name!r}. Set {POLICY_VARIABLE} to one of {', '.join(POLICIES)}."
        )
    return name


def _roots(folders: Sequence[str], *, over_http: bool) -> Roots:
    for folder in folders:
        if not is_folder(Path(folder).expanduser()):
            raise SettingsError(
                f"The root {folder} is not a folder. Correct --root or {ROOTS_VARIABLE} "
                f"(separate several folders with {os.pathsep!r})."
            )
    if folders:
        return roots_of(folders)
    return NO_ROOTS if over_http else roots_of(default_folders(Path.cwd(), Path.home()))


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder. False for a name that the file system does not allow."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Whether `path` is a file. False for a name that the file system does not allow."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host in LOOPBACK_HOSTS:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

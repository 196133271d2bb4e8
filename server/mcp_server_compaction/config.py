"""Configuration of the server, created once from the options of the command line.

click reads each option from a flag, a variable or a file, and checks its form.
"""

import ipaddress
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import urlsplit

from context_compaction import Roots, SettingsError, default_folders, roots_of

if TYPE_CHECKING:
    from context_compaction import RedactionMode

from mcp_server_compaction.archive_place import ARCHIVE_VARIABLE as ARCHIVE_VARIABLE
from mcp_server_compaction.archive_place import archive_place

ROOTS_VARIABLE = "MCP_COMPACTION_ROOTS"
POLICY_VARIABLE = "MCP_COMPACTION_POLICY"
MODEL_VARIABLE = "MCP_COMPACTION_MODEL"
SUMMARIZER_VARIABLE = "MCP_COMPACTION_SUMMARIZER"
SUMMARY_MODEL_VARIABLE = "MCP_COMPACTION_SUMMARY_MODEL"
REDACTION_VARIABLE = "MCP_COMPACTION_REDACTION"
IMPORT_VARIABLE = "MCP_COMPACTION_IMPORT"
SUMMARY_TIMEOUT_VARIABLE = "MCP_COMPACTION_SUMMARY_TIMEOUT"
# Names of these two variables in Anthropic's own programs.
KEY_VARIABLE = "ANTHROPIC_API_KEY"
URL_VARIABLE = "ANTHROPIC_BASE_URL"

NO_ROOTS = Roots()
# Claude Desktop waits four minutes for a tool, other hosts one or two.
SUMMARY_SECONDS = 120
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")

WriterName: TypeAlias = Literal["auto", "extractive", "host", "anthropic", "sampling"]


@dataclass(frozen=True, slots=True)
class Summaries:
    """Options of summaries.

    Attributes:
        writer: Writer for calls that do not choose one.
        api_key: Key for Anthropic's API. No output contains it.
        model: Model that writes. None for the default model.
        url: Address of the API. None for Anthropic's own.
        timeout_seconds: Maximum time that one compaction waits for a model.
    """

    writer: WriterName = "auto"
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None
    url: str | None = None
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
    summary_model: str | None = None,
    summary_url: str | None = None,
    summary_timeout: float | None = None,
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
            the key or address of a model is invalid.
    """
    folder, address = archive_place(archive)
    writer = summarizer or "auto"
    return Config(
        archive_folder=folder,
        archive_address=address,
        roots=_roots(roots, over_http=over_http),
        policy=_policy(environment.get(POLICY_VARIABLE)),
        model=environment.get(MODEL_VARIABLE) or None,
        summaries=Summaries(
            writer=writer,
            api_key=_key(environment.get(KEY_VARIABLE), writer),
            model=summary_model,
            url=_url(summary_url),
            timeout_seconds=summary_timeout or SUMMARY_SECONDS,
        ),
        # A service must not store other users' secrets.
        redaction=redaction or ("on" if over_http else "warn"),
        imports_sessions=imports != "off" and not over_http,
    )


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


def _key(key: str | None, writer: WriterName) -> str | None:
    key = (key or "").strip()
    if not key and writer == "anthropic":
        raise SettingsError(f"The summary writer 'anthropic' needs a key. Set {KEY_VARIABLE}.")
    # The error does not contain the key, because a wrong key may still be a secret.
    if not key.isascii() or not key.isprintable():
        raise SettingsError(f"{KEY_VARIABLE} has characters that no key contains. Set it again.")
    return key or None


def _url(url: str | None) -> str | None:
    if not url:
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.username or parts.password:
        raise SettingsError(
            f"The address in --summary-url or {URL_VARIABLE} contains a name or password. Remove "
            f"it, and put the key into {KEY_VARIABLE}."
        )
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise SettingsError(
            f"Invalid address {url!r} in --summary-url or {URL_VARIABLE}. Use one like "
            "https://host/path."
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise SettingsError(
            f"{url} would send the key and the conversation unencrypted. Use https in "
            f"--summary-url or {URL_VARIABLE}, or http only for this machine."
        )
    return url

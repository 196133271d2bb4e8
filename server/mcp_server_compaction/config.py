"""The server's configuration, made once from the command line's options and then frozen.

click takes each option from a flag, a variable or a file, and checks its form.
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
# These two have the names that Anthropic's own programs use.
KEY_VARIABLE = "ANTHROPIC_API_KEY"
URL_VARIABLE = "ANTHROPIC_BASE_URL"

NO_ROOTS = Roots()
# Claude Desktop gives a tool four minutes, other hosts one or two.
SUMMARY_SECONDS = 120
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")

WriterName: TypeAlias = Literal["auto", "extractive", "host", "anthropic", "sampling"]


@dataclass(frozen=True, slots=True)
class Summaries:
    """Who writes summaries.

    Attributes:
        writer: For a call that leaves it open.
        api_key: The key of Anthropic's API; shown nowhere.
        model: The model that writes; None for the default one.
        url: Address of the API; None for Anthropic's own.
        timeout_seconds: How long one compaction waits for a model.
    """

    writer: WriterName = "auto"
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None
    url: str | None = None
    timeout_seconds: float = SUMMARY_SECONDS


@dataclass(frozen=True, slots=True)
class Config:
    """How one process serves.

    Attributes:
        archive_folder: Where the archive lies; made when it is first used. For an archive at an
            address, where this machine keeps what belongs to it alone: how far it has imported
            its own files, what its hooks noted, the token of its HTTP service.
        roots: The folders whose files the tools may read.
        policy: The policy of a call that names none.
        model: The model of a call that names none, for its window and tokenizer.
        summaries: Who writes summaries.
        redaction: What becomes of secrets: "off", "warn" or "on".
        imports_sessions: Whether sessions that hosts keep on disk are archived by themselves, when
            the server starts and before each search.
        archive_address: Where the archive is, if it is no folder of this machine; it may hold a
            password.
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
        """What `open_archive` is to open."""
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
    """The configuration of this process, from options and the rest of the environment.

    Over HTTP no file is read unless roots are named, and no session of this user's hosts is
    archived: the caller may sit elsewhere.

    Raises:
        SettingsError: A named root is no folder, the archive's place is a file, there is no such
            policy, or the key or address of a model cannot be used.
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
        # Whoever serves others keeps no secrets of theirs; one's own archive is one's own.
        redaction=redaction or ("on" if over_http else "warn"),
        imports_sessions=imports != "off" and not over_http,
    )


def _policy(named: str | None) -> str:
    if not named:
        return "default"
    from context_compaction import POLICIES  # with all layers: only for who names one

    if named not in POLICIES:
        known = ", ".join(POLICIES)
        raise SettingsError(
            f"There is no policy {named!r}. Name one of {known} with {POLICY_VARIABLE}."
        )
    return named


def _roots(named: Sequence[str], *, over_http: bool) -> Roots:
    for folder in named:
        if not is_folder(Path(folder).expanduser()):
            raise SettingsError(
                f"The root {folder} is not a folder. Correct --root or {ROOTS_VARIABLE} "
                f"(several are separated by {os.pathsep!r})."
            )
    if named:
        return roots_of(named)
    return NO_ROOTS if over_http else roots_of(default_folders(Path.cwd(), Path.home()))


def is_folder(path: Path) -> bool:
    """Whether there is a folder at `path`; a name that no file system takes is none."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Whether there is a file at `path`; a name that no file system takes is none."""
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
        raise SettingsError(f"The summary writer 'anthropic' needs a key: set {KEY_VARIABLE}.")
    # The text of a bad key must not come back in an error: it may still be somebody's secret.
    if not key.isascii() or not key.isprintable():
        raise SettingsError(f"{KEY_VARIABLE} holds characters that no key has. Set it anew.")
    return key or None


def _url(named: str | None) -> str | None:
    if not named:
        return None
    try:
        parts = urlsplit(named)
    except ValueError:
        parts = urlsplit("")
    if parts.username or parts.password:
        raise SettingsError(
            "The address of the summary model holds a name or password. Put the key into "
            f"{KEY_VARIABLE} and leave these out of --summary-url or {URL_VARIABLE}."
        )
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise SettingsError(
            f"The address of the summary model is {named!r}. Give one as https://host/path with "
            f"--summary-url or {URL_VARIABLE}."
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise SettingsError(
            f"{named} would carry key and conversation in the clear. Use https, or http on this "
            f"machine alone, with --summary-url or {URL_VARIABLE}."
        )
    return named

"""Configuration of the server, created once from the options of the command line.

click reads each option from a flag, a variable or a file, and checks its form. The options of a
command are the keyword arguments of its function, or the fields of a dataclass:

    @click.command()
    @own_options
    def search(*, limit: Annotated[int, click.IntRange(1, 50)] = 10) -> None:
        '''Search the archive.

        Options:
            limit (N): Print at most N matches.
        '''

The type gives the kind of the option: a flag, a choice, or one that may be repeated. The word in
parentheses is the name of its value in the help. In brackets, the value may be omitted.
"""

import inspect
import ipaddress
import os
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import click
from context_compaction import Roots, SettingsError, default_folders, roots_of

from mcp_server_compaction.program import ARCHIVE_VARIABLE as ARCHIVE_VARIABLE
from mcp_server_compaction.program import archive_place

ROOTS_VARIABLE = "MCP_COMPACTION_ROOTS"
POLICY_VARIABLE = "MCP_COMPACTION_POLICY"
MODEL_VARIABLE = "MCP_COMPACTION_MODEL"
SUMMARIZER_VARIABLE = "MCP_COMPACTION_SUMMARIZER"

NO_ROOTS = Roots()
# False for a name that the file system does not allow, for which `Path` raises an error.
is_folder, is_file = os.path.isdir, os.path.isfile
# Claude Desktop waits four minutes for a tool, other hosts one or two.
SUMMARY_SECONDS = 120
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")

# The library's `RedactionMode`, whose module is slow to import.
Redaction: TypeAlias = Literal["off", "warn", "on"]
WriterName: TypeAlias = Literal["auto", "extractive", "host", "model", "sampling"]

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])
Positive: TypeAlias = Annotated[int, click.IntRange(1)]
Port: TypeAlias = Annotated[int, click.IntRange(0, 65_535)]
NewFile: TypeAlias = Annotated[Path, click.Path(dir_okay=False, path_type=Path)]


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
    redaction: Redaction = "warn"
    imports_sessions: bool = False
    archive_address: str | None = field(default=None, repr=False)

    @property
    def archive(self) -> Path | str:
        """The argument for `open_archive`."""
        return self.archive_address or self.archive_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Whether and how the server is reached over HTTP.

    Options:
        http: Serve Streamable HTTP at /mcp (default: standard input/output).
        host: With --http: listen at this address.
        port: With --http: listen at this port; 0 chooses a free one.
        unix_socket: With --http: listen at this path instead, for your user only and without a
            token.
        workers: With --http: start this many processes.
        public_url (URL): With --http: serve a team that calls this URL, behind a proxy with TLS
            (default: serve your user only).
        oauth_issuer (URL): With --public-url: accept tokens of this authorization server (default:
            none).
        oauth_audience (NAME): Require this audience in its tokens (default: the public URL with
            /mcp).
        oauth_jwks_url (URL): Read its keys from this address (default: the address in its
            metadata).
        oauth_tenant_claim (NAME): Read the tenant from this claim of its tokens.
        audit_log: With --http: log to this file who read or deleted data (default: not logged).
        metrics: With --http: serve Prometheus metrics at /metrics (default: not served).
    """

    http: bool = False
    host: str = "127.0.0.1"
    port: Port = 8765
    unix_socket: Path | None = None
    workers: Annotated[int, click.IntRange(1, 64)] = 1
    public_url: str | None = None
    oauth_issuer: str | None = None
    oauth_audience: str | None = None
    oauth_jwks_url: str | None = None
    oauth_tenant_claim: str = "tenant"
    audit_log: NewFile | None = None
    metrics: bool = False

    @property
    def is_stateless(self) -> bool:
        """Whether different processes may handle the calls of one client."""
        return self.workers > 1 or self.public_url is not None

    @property
    def audience(self) -> str:
        """The audience that tokens of the authorization server must have."""
        return self.oauth_audience or f"{self.public_url}/mcp"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions:
    """Options of the proxy before a model's API.

    Options:
        upstream (URL): Send requests to the API of a model at this address (default:
            https://api.anthropic.com; with `run` the one that the host would use).
        port: Port; 0 for a free one.
        policy (P): Compact with this policy (default: default).
        context_window (N): Compact for a window of N tokens (default: 0.8 of the window of model
            and host).
        observe: Archive and count only (default: edit requests).
        summaries: Write summaries from extracts, or ask the caller's own model, which costs tokens.

    Attributes:
        host_window: The window for which the host compacts its context, if it is known.
    """

    upstream: str | None = None
    port: Port = 0
    policy: str | None = None
    context_window: Positive | None = None
    observe: bool = False
    summaries: Literal["extractive", "caller"] = "extractive"
    host_window: int | None = None


def load_config(
    *,
    archive: str | None = None,
    roots: tuple[Path, ...] = (),
    summarizer: WriterName | None = None,
    summarizer_model: tuple[str, ...] = (),
    summarizer_url: str | None = None,
    summarizer_key_env: str | None = None,
    summarizer_window: Annotated[int, click.IntRange(2_000)] | None = None,
    summarizer_timeout: Annotated[int, click.IntRange(1, 3_600)] | None = None,
    redaction: Redaction | None = None,
    import_sessions: Literal["on", "off"] | None = None,
    over_http: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> Config:
    """Return the configuration of this process, from options and environment variables.

    Over HTTP the caller may be another user. Therefore no file is read unless roots are named, and
    no session of this user's hosts is imported.

    Options:
        archive (DIR): Use the archive in this folder or at postgresql://… (default: in your data
            folder).
        roots (DIR): Let tools read files in this folder; repeatable (default: the working folder
            and hosts' transcript folders; over HTTP none).
        summarizer (W): Write summaries with auto, extractive, host, model or sampling (default:
            auto).
        summarizer_model (M): Write summaries with anthropic:MODEL, openai:MODEL,
            openai-responses:MODEL, or a model of the server at --summarizer-url; repeated, calls
            may choose one (default: none).
        summarizer_url (URL): Send summary requests to this address (default: the provider's own).
        summarizer_key_env (NAME): Send the key in this environment variable with summary requests
            (default: no key).
        summarizer_window (N): Fit summary requests into a window of N tokens (default: of the
            model).
        summarizer_timeout (S): Wait at most S seconds for a summary from a model (default: 120).
        redaction (R): Ignore (off), report (warn) or remove (on) secrets (default: warn; over HTTP
            on).
        import_sessions (I): Archive hosts' sessions at start: on or off (default: on; over HTTP
            off).

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
                models=summarizer_model,
                url=summarizer_url,
                key_env=summarizer_key_env,
                context_window=summarizer_window,
                timeout_seconds=summarizer_timeout or SUMMARY_SECONDS,
            ),
            environment,
        ),
        # A service must not store other users' secrets.
        redaction=redaction or ("on" if over_http else "warn"),
        imports_sessions=import_sessions != "off" and not over_http,
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


def _roots(folders: Sequence[Path], *, over_http: bool) -> Roots:
    for folder in folders:
        if not is_folder(folder.expanduser()):
            raise SettingsError(
                f"The root {folder} is not a folder. Correct --root or {ROOTS_VARIABLE} "
                f"(separate several folders with {os.pathsep!r})."
            )
    if folders:
        return roots_of(folders)
    return NO_ROOTS if over_http else roots_of(default_folders(Path.cwd(), Path.home()))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host in LOOPBACK_HOSTS:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def own_options(function: AnyFunction) -> AnyFunction:
    """Make the described keyword arguments of a command's function options of the command."""
    return options_of(function)(function)


def options_of(
    source: Callable[..., Any], variables: str = ""
) -> Callable[[AnyFunction], AnyFunction]:
    """Return a decorator that gives a command the described keyword arguments of `source`.

    They are described in a section `Options` in the docstring of the command or of `source`.

    Args:
        source: Function or dataclass.
        variables: Start of the names of environment variables that set the options; "" for none.
    """
    hints = typing.get_type_hints(source, include_extras=True)
    parameters = inspect.signature(source).parameters

    def add(function: AnyFunction) -> AnyFunction:
        described = entries(function, "Options") or entries(source, "Options")
        function.__doc__ = inspect.cleandoc(function.__doc__ or "").partition("\n\nOptions:")[0]
        for name, value_name, text in reversed(described):
            kind, is_multiple = _kind_of(hints[name])
            flag = name.removeprefix("as_").removesuffix("s" if is_multiple else "_id").rstrip("_")
            is_required = parameters[name].default is inspect.Parameter.empty
            omitted: dict[str, Any] = {"flag_value": ""} if value_name.startswith("[") else {}
            function = click.option(
                f"--{flag.replace('_', '-')}",
                name,
                type=kind,
                default=None if is_required else parameters[name].default,
                required=is_required,
                is_flag=kind is bool,
                multiple=is_multiple,
                metavar=value_name or None,
                help=text,
                envvar=f"{variables}{name.upper()}" if variables else None,
                show_envvar=bool(variables),
                **omitted,
            )(function)
        return function

    return add


def _kind_of(hint: Any) -> tuple[Any, bool]:
    """Return the type of an option's value, and whether the option may be repeated."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):  # Python before 3.14 has two types for these.
        [hint] = [part for part in parts if part is not types.NoneType]
        return _kind_of(hint)
    if origin is tuple:
        return _kind_of(parts[0])[0], True
    if origin is Literal:
        return click.Choice(parts), False
    if origin is Annotated:
        return parts[1], False
    return (click.Path(path_type=Path) if hint is Path else hint), False


def entries(item: object, section: str) -> list[tuple[str, str, str]]:
    """Return the entries of a section of a docstring: name, text in parentheses, description."""
    # `cleandoc`, because Python before 3.13 keeps the indentation of docstrings.
    _, _, text = inspect.cleandoc(item.__doc__ or "").partition(f"{section}:\n")
    # A section ends at the next line without indentation.
    text = re.split(r"^\S", text, maxsplit=1, flags=re.MULTILINE)[0]
    found = re.findall(r"^    (\w+)(?: \((.+?)\))?: (.+(?:\n {8,}.+)*)", text, re.MULTILINE)
    return [(name, value, " ".join(words.split())) for name, value, words in found]

"""Register the server and its hooks in a host's configuration, and remove them again.

Only this module writes files of hosts. All changes are planned before the first file is written.
Each file is then replaced in one step, after the original was copied to a backup.
"""

import contextlib
import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from importlib.resources import files
from pathlib import Path

from context_compaction import SettingsError, make_folder, put_file
from context_compaction.system import command_line, user_folder

from mcp_server_compaction.hosts import Json
from mcp_server_compaction.hosts.catalog import (
    REGISTERED_NAME,
    ConfigScope,
    Hooks,
    Host,
    UserFolders,
)
from mcp_server_compaction.hosts.config_text import changed_text, value_of
from mcp_server_compaction.hosts.hook_events import LARGE_CHARS, as_list, as_object
from mcp_server_compaction.program import SCRIPT
from mcp_server_compaction.wrap.servers import SECTION as WRAP_SECTION
from mcp_server_compaction.wrap.servers import command_in, server_of

_MODULE = "mcp_server_compaction"
# The program may have a quote behind it, in the text of a JSON file with a backslash.
_HOOK_COMMAND = re.compile(r"mcp[-_]server[-_]compaction(?:\.exe)?['\"\\]* hook\b")


@dataclass(frozen=True, slots=True)
class Change:
    """A planned change of one file.

    Attributes:
        path: Path of the file, with links resolved.
        before: Text of the file; None if it does not exist.
        after: New text of the file; None if it is deleted.
        original: Text without this program's entries, which `uninstall` needs; None if the file
            then does not exist.
    """

    path: Path
    before: str | None
    after: str | None
    original: str | None = None


@dataclass(frozen=True, slots=True)
class Installation:
    """The command to register in a host.

    Attributes:
        program: Command that starts this program. Its first word is an absolute path.
        flags: Flags of the server, such as `--root DIR`.
        with_hooks: Whether hooks are registered as well.
        wrapped: Entries of other servers that move behind this program, by name.
    """

    program: Sequence[str]
    flags: Sequence[str] = ()
    with_hooks: bool = False
    wrapped: Mapping[str, Json] = field(default_factory=dict[str, Json])


def plan_install(
    host: Host, scope: ConfigScope, folders: UserFolders, installation: Installation
) -> list[Change]:
    """Return the changes that register the server. Files that need no change are omitted.

    Hooks that are already registered are updated, because server and hooks must use one archive.

    Raises:
        SettingsError: The host has no such file or no hooks, or a file cannot be read or changed.
    """
    path = config_file(host, scope, folders)
    if installation.with_hooks and not host.hooks:
        raise SettingsError(
            f"{host.title} has no hooks. Install without --hooks: its model can then search and "
            "read the archive and store outputs, but nothing is archived automatically."
        )
    value = read_value(path, host.format)
    changes: list[Change] = []
    if installation.wrapped:
        file = _state_file(path, "servers.json")
        servers = {**_wrapped_servers(host, value, path), **installation.wrapped}
        text = json.dumps({WRAP_SECTION: servers}, indent=2, ensure_ascii=False)
        changes.append(Change(file, _read(file), f"{text}\n"))  # first, because the host needs it
    value, flags = _with_server(host, value, installation, path)
    values = {path: value}
    if host.hooks and (installation.with_hooks or are_hooks_registered(host, scope, folders)):
        file = host.hooks.file(folders, scope).resolve()
        command = [*installation.program, "hook"]
        hook_flags = ["--host", host.name]
        hook_flags += [*flags.get("--archive", ()), *flags.get("--redaction", ())]
        if host.hooks.style == "plugin":
            changes.append(_plugin_change(file, command, hook_flags))
        else:
            value = values[file] if file in values else read_value(file, "json")
            values[file] = _with_hooks(_without_hooks(value), host.hooks, command, hook_flags)
    changes += [
        _change(host, file, host.format if file == path else "json", value)
        for file, value in values.items()
    ]
    return [change for change in changes if change.before != change.after]


def servers_to_wrap(
    host: Host, scope: ConfigScope, folders: UserFolders, names: Sequence[str]
) -> tuple[dict[str, Json], list[str]]:
    """Return the entries of other servers that can be wrapped, and why the others cannot.

    Args:
        host: The host.
        scope: The host's configuration.
        folders: Folders of the user.
        names: Names of the wanted servers; empty for all. A server at an address without headers
            must be named, because its host may sign in to it, which the proxy cannot.

    Raises:
        SettingsError: No server can be wrapped, or the host has no server of a given name.
    """
    path = config_file(host, scope, folders)
    value = read_value(path, host.format)
    section = as_object(value.get(host.section))
    others = {name: entry for name, entry in section.items() if not _is_own_entry(entry)}
    earlier = _wrapped_servers(host, value, path)
    if unknown := [name for name in names if name not in {**others, **earlier}]:
        known = ", ".join(others) or "none"
        raise SettingsError(f"{path} has no server {unknown[0]!r}. Its servers are: {known}.")
    chosen: dict[str, Json] = {}
    notes: list[str] = []
    for name, entry in others.items():
        fields = as_object(entry)
        if names and name not in names:
            continue
        try:
            server = server_of(name, entry)
        except SettingsError as error:
            notes.append(str(error))
            continue
        if fields.get("enabled") is False or fields.get("disabled") is True:
            notes.append(f"The server {name!r} is disabled. It was not wrapped.")
        elif server.url and not server.headers and name not in names:
            flag = f"--wrap {name}"
            notes.append(f"The host may sign in to the server {name!r}. Wrap it with: {flag}")
        else:
            chosen[name] = entry
    if not chosen and not earlier:
        problem = " ".join(notes) or f"{path} has no other server."
        raise SettingsError(f"No server can be wrapped. {problem} Or install without --wrap.")
    return chosen, notes


def _wrapped_servers(host: Host, value: Mapping[str, Json], path: Path) -> dict[str, Json]:
    """Return the entries that `install --wrap` moved out of a host's configuration."""
    file = _state_file(path, "servers.json")
    if str(file) not in installed_command(host, value):
        return {}
    if not file.is_file():
        raise SettingsError(
            f"{path} starts the servers in {file}, which is missing. Restore that file, or remove "
            f"the entry {REGISTERED_NAME!r} by hand and add the servers again."
        )
    return as_object(read_value(file, "json").get(WRAP_SECTION))


def plan_uninstall(host: Host, scope: ConfigScope, folders: UserFolders) -> list[Change]:
    """Return the changes that remove the server and its hooks.

    A file that nobody changed since `install` gets its original bytes again, and so do the lines
    that nobody changed in other files. A file that `install` created is deleted. Wrapped servers
    are entries of the host again.

    Raises:
        SettingsError: The host has no such file, or a file cannot be read or changed.
    """
    formats = {config_file(host, scope, folders): host.format}
    changes: list[Change] = []
    if host.hooks:
        file = host.hooks.file(folders, scope).resolve()
        if host.hooks.style != "plugin":
            formats.setdefault(file, "json")
        elif _is_own_plugin(_read(file)):
            changes.append(Change(file, _read(file), None))
    changes += [_removal(host, file, format) for file, format in formats.items()]
    servers = _state_file(config_file(host, scope, folders), "servers.json")
    changes.append(Change(servers, _read(servers), None))
    return [change for change in changes if change.before != change.after]


def apply_change(change: Change) -> Path | None:
    """Write one change, and return the path of the backup if one was made.

    Raises:
        SettingsError: The file changed after the plan was made, or it cannot be written.
    """
    backup, written = _state_file(change.path, "bak"), _state_file(change.path, "written")
    try:
        if _read(change.path) != change.before:
            raise SettingsError(
                f"Another program has just changed {change.path}. Run this command again."
            )
        if change.original is not None and change.after is not None:
            make_folder(backup.parent)
            put_file(backup, change.original.encode("utf-8"))
            put_file(written, change.after.encode("utf-8"))
        if change.after is None:
            change.path.unlink()
        else:
            _create_folders(change.path)
            mode = 0o600 if change.before is None else change.path.stat().st_mode & 0o777
            put_file(change.path, change.after.encode("utf-8"))
            change.path.chmod(mode)
        if change.original is None:  # also if an installation was removed by hand
            backup.unlink(missing_ok=True)
            written.unlink(missing_ok=True)
    except OSError as error:
        raise SettingsError(
            f"Cannot write {error.filename or change.path}: {error.strerror}. "
            "Correct its permissions, then run this command again."
        ) from error
    return None if change.original is None else backup


def _create_folders(path: Path) -> None:
    """Create the folders of a file, and record them so that `uninstall` can remove them."""
    missing = [folder for folder in path.parents if not folder.exists()]
    if missing:
        record = _state_file(path, "folders")
        make_folder(record.parent)
        put_file(record, json.dumps([str(folder) for folder in missing]).encode("ascii"))
        missing[0].mkdir(parents=True, exist_ok=True)


def delete_created_folders(changes: Sequence[Change]) -> None:
    """Delete the empty folders that `install` created for files that `uninstall` changed."""
    for record in {_state_file(change.path, "folders") for change in changes}:
        for folder in json.loads(_read(record) or "[]"):
            with contextlib.suppress(OSError):  # the user has put other files into the folder
                Path(folder).rmdir()
        record.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it contains the backups of other hosts
            record.parent.rmdir()
            record.parent.parent.rmdir()


def _state_file(path: Path, suffix: str) -> Path:
    """Return the file in which `install` saves something about a host's file."""
    key = hashlib.blake2b(str(path).encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return user_folder("state") / "host-files" / f"{path.name}.{key}.{suffix}"


def config_file(host: Host, scope: ConfigScope, folders: UserFolders) -> Path:
    """Return the file in which the host looks for servers, with links resolved.

    Raises:
        SettingsError: The host has no file for this scope.
    """
    path = host.file(folders, scope)
    if path is None:
        raise SettingsError(
            f"{host.title} has a configuration for the user, but none for a project. "
            "Run this command without --scope."
        )
    return path.resolve()


def read_value(path: Path, format: str) -> dict[str, Json]:
    """Return the value of a configuration file; an empty table if the file does not exist.

    Raises:
        SettingsError: The file cannot be read or parsed.
    """
    return value_of(format, _read(path) or "", path)


def installed_command(host: Host, value: Mapping[str, Json]) -> list[str]:
    """Return the command that starts the server; an empty list if it is not registered."""
    return command_in(as_object(value.get(host.section)).get(REGISTERED_NAME))


def are_hooks_registered(host: Host, scope: ConfigScope, folders: UserFolders) -> bool:
    """Whether the host runs hooks of this program.

    Raises:
        SettingsError: The file with the hooks cannot be read.
    """
    if host.hooks is None:
        return False
    text = _read(host.hooks.file(folders, scope).resolve())
    return _is_own_plugin(text) or _HOOK_COMMAND.search(text or "") is not None


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise SettingsError(
            f"{path} is not UTF-8 text. Nothing was written. "
            "Save the file as UTF-8, then run this command again."
        ) from None
    except OSError as error:
        raise SettingsError(
            f"Cannot read {path}: {error.strerror}. Nothing was written."
        ) from error


def _change(host: Host, path: Path, format: str, value: dict[str, Json]) -> Change:
    before = _read(path)
    old = value_of(format, before or "", path)
    if value == old:
        return Change(path, before, before)
    original = _removal(host, path, format).after
    return Change(path, before, changed_text(format, before or "", value, path), original)


def _removal(host: Host, path: Path, format: str) -> Change:
    """Return the change that removes this program's entries from a file."""
    before = _read(path)
    installed = value_of(format, before or "", path)
    value = _without_own_entries(host, installed)
    wrapped = _wrapped_servers(host, installed, path)
    if wrapped:
        value[host.section] = {**wrapped, **as_object(value.get(host.section))}
    if value == installed:
        return Change(path, before, before)
    backup, written = _read(_state_file(path, "bak")), _read(_state_file(path, "written"))
    if backup is None and not _settings(value):
        return Change(path, before, None)
    merged = _merged(written or "", backup or "", before or "")
    # The values are compared, because the user may have added a setting exactly as `install` would
    # write it.
    with contextlib.suppress(SettingsError):
        if _settings(value_of(format, merged, path)) == _settings(value):
            return Change(path, before, merged)
    return Change(path, before, changed_text(format, before or "", value, path))


def _merged(installed: str, original: str, present: str) -> str:
    """Return `original` with the changes that lead from `installed` to `present`.

    The result is empty if the user changed lines that `install` had changed.
    """
    lines = installed.splitlines(keepends=True)
    edits: list[tuple[int, int, list[str]]] = []
    for text in (original, present):
        others = text.splitlines(keepends=True)
        codes = SequenceMatcher(None, lines, others).get_opcodes()
        edits += [(a, b, others[c:d]) for tag, a, b, c, d in codes if tag != "equal"]
    edits.sort(key=lambda edit: edit[:2])
    pairs = itertools.pairwise(edits)
    if any(later[0] < earlier[1] or later[0] == earlier[0] for earlier, later in pairs):
        return ""
    for start, stop, replacement in reversed(edits):
        lines[start:stop] = replacement
    return "".join(lines)


def _settings(value: Mapping[str, Json]) -> dict[str, Json]:
    """Return `value` without empty settings, and without the version that a file of hooks needs."""
    return {key: item for key, item in value.items() if item and key != "version"}


def _with_server(
    host: Host, value: Mapping[str, Json], installation: Installation, path: Path
) -> tuple[dict[str, Json], dict[str, list[str]]]:
    """Return the configuration with the server, and the server's flags by name.

    Flags of an earlier installation are kept, unless the new installation has them as well.
    """
    section: Json = value.get(host.section, {})
    if not isinstance(section, dict | None):
        raise SettingsError(
            f"{host.section!r} in {path} is not a table. Nothing was written. "
            "Correct the file, then run this command again."
        )
    servers = {
        name: entry
        for name, entry in as_object(section).items()
        if name not in installation.wrapped
    }
    old = servers.get(REGISTERED_NAME)
    if old is not None and not _is_own_entry(old):
        raise SettingsError(
            f"{path} has another server named {REGISTERED_NAME!r}. Nothing was written. "
            "Rename that server, then run this command again."
        )
    words = installed_command(host, value)
    program_stops = (
        index for index, word in enumerate(words, 1) if SCRIPT in word or word == _MODULE
    )
    earlier_flags, subcommand = _flags_by_name(words[next(program_stops, len(words)) :])
    flags = earlier_flags | _flags_by_name(installation.flags)[0]
    if installation.wrapped:
        subcommand = ["wrap", "--config", str(_state_file(path, "servers.json"))]
    command = [*installation.program, *itertools.chain(*flags.values()), *subcommand]
    entry = {**as_object(old), **host.entry_for(command)}
    return {**value, host.section: {**servers, REGISTERED_NAME: entry}}, flags


def _flags_by_name(words: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the words of each flag (`--root DIR` or `--root=DIR`), and the words after all."""
    flags: dict[str, list[str]] = {}
    index = 0
    while index < len(words) and words[index].startswith("--"):
        name, has_value, _ = words[index].partition("=")
        size = 1 if has_value else 2
        flags.setdefault(name, []).extend(words[index : index + size])
        index += size
    return flags, [*words[index:]]


def _with_hooks(
    value: Mapping[str, Json], hooks: Hooks, command: Sequence[str], flags: Sequence[str]
) -> dict[str, Json]:
    """Return `value` with the hook of each event, in the form of the host."""
    table = dict(as_object(value.get("hooks")))
    for event, matcher in hooks.events.items():
        line = command_line([*command, event, *flags], in_bash=hooks.in_bash)
        handler: dict[str, Json] = {"command": line, "timeout": hooks.timeout}
        condition = {"matcher": matcher} if matcher else {}
        if hooks.style == "flat":
            group = {**handler, **condition}
        else:
            group = {**condition, "hooks": [{"type": "command", **handler}]}
        table[event] = [group, *as_list(table.get(event))]
    # Cursor ignores a file of hooks without a version.
    version = {"version": 1} if hooks.style == "flat" else {}
    return {**version, **value, "hooks": table}


def _without_own_entries(host: Host, value: dict[str, Json]) -> dict[str, Json]:
    """Return `value` without this program's hooks and server, and tables that become empty."""
    value = _without_hooks(value)
    section = as_object(value.get(host.section))
    if not _is_own_entry(section.get(REGISTERED_NAME, "")):
        return value
    others = {name: entry for name, entry in section.items() if name != REGISTERED_NAME}
    return _with_table(value, host.section, others)


def _without_hooks(value: Mapping[str, Json]) -> dict[str, Json]:
    """Return `value` without this program's hooks, and lists and tables that become empty."""
    table: dict[str, Json] = {}
    for event, groups in as_object(value.get("hooks")).items():
        foreign = [group for group in map(_foreign_part, as_list(groups)) if group is not None]
        if foreign or not as_list(groups):
            table[event] = foreign or groups
    return _with_table(value, "hooks", table)


def _with_table(value: Mapping[str, Json], key: str, table: dict[str, Json]) -> dict[str, Json]:
    """Return `value` with another table, or without its key if the table became empty."""
    if table == as_object(value.get(key)):
        return dict(value)
    rest = {name: item for name, item in value.items() if name != key}
    return {**value, key: table} if table else rest


def _foreign_part(group: Json) -> Json:
    """Return a group of hooks without this program's hooks; None if it has no others."""
    members = as_object(group)
    if _is_own_hook(members):
        return None
    handlers = as_list(members.get("hooks"))
    foreign = [handler for handler in handlers if not _is_own_hook(as_object(handler))]
    if len(foreign) == len(handlers):
        return group
    return {**members, "hooks": foreign} if foreign else None


def _is_own_hook(handler: Mapping[str, Json]) -> bool:
    return _HOOK_COMMAND.search(str(handler.get("command", ""))) is not None


def _is_own_entry(entry: Json) -> bool:
    text = str(entry)
    return SCRIPT in text or _MODULE in text


def _plugin_change(file: Path, command: Sequence[str], flags: Sequence[str]) -> Change:
    """Return the change that writes the plugin of opencode."""
    text = files("mcp_server_compaction.hosts").joinpath("opencode_plugin.js").read_text("utf-8")
    values = {"COMMAND": command, "FLAGS": flags, "LARGE_CHARS": LARGE_CHARS}
    for name, value in values.items():
        text = text.replace(f'"@{name}@"', json.dumps(value))
    before = _read(file)
    if before is not None and not _is_own_plugin(before):
        raise SettingsError(
            f"{file} is another plugin with the same name. Nothing was written. "
            "Rename that file, then run this command again."
        )
    return Change(file, before, text)


def _is_own_plugin(text: str | None) -> bool:
    return (text or "").startswith(f"// {SCRIPT}: written by")

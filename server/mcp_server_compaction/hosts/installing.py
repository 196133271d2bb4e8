"""Register the server and its hooks in a host's configuration, and remove them again.

Only this module writes files of hosts. All changes are planned before the first file is written.
Each file is then replaced in one step, after the original was copied to a backup.
"""

import contextlib
import hashlib
import itertools
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from context_compaction import SettingsError, make_folder, put_file

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
from mcp_server_compaction.own_command import SCRIPT

_MODULE = "mcp_server_compaction"
_HOOK_COMMAND = re.compile(r"mcp[-_]server[-_]compaction(?:\.exe)?['\"]? hook\b")


@dataclass(frozen=True, slots=True)
class Change:
    """A planned change of one file.

    Attributes:
        path: Path of the file, with links resolved.
        before: Text of the file; None if it does not exist.
        after: New text of the file; None if it is deleted.
        is_first: Whether `before` contains no entry of this program, so that it needs a backup.
    """

    path: Path
    before: str | None
    after: str | None
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class Installation:
    """The command to register in a host.

    Attributes:
        program: Command that starts this program. Its first word is an absolute path.
        flags: Flags of the server, such as `--root DIR`.
        with_hooks: Whether hooks are registered as well.
    """

    program: Sequence[str]
    flags: Sequence[str] = ()
    with_hooks: bool = False


def this_program() -> list[str]:
    """Return a command that starts this program without a search in `PATH`."""
    script = shutil.which(SCRIPT, path=Path(sys.executable).parent) or shutil.which(SCRIPT)
    return [str(Path(script).absolute())] if script else [sys.executable, "-m", _MODULE]


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
    value, flags = _with_server(host, read_value(path, host.format), installation, path)
    values, changes = {path: value}, list[Change]()
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


def plan_uninstall(host: Host, scope: ConfigScope, folders: UserFolders) -> list[Change]:
    """Return the changes that remove the server and its hooks.

    A file that nobody changed since `install` gets its original bytes again. A file that `install`
    created is deleted. All other files lose only the entries of this program.

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
    return [change for change in changes if change.before != change.after]


def apply_change(change: Change) -> Path | None:
    """Write one change, and return the path of the backup if one was made.

    Raises:
        SettingsError: The file changed after the plan was made, or it cannot be written.
    """
    backup = _state_file(change.path, "bak")
    needs_backup = change.is_first and change.before is not None
    try:
        if _read(change.path) != change.before:
            raise SettingsError(
                f"Another program has just changed {change.path}. Run this command again."
            )
        if needs_backup:
            make_folder(backup.parent)
            put_file(backup, (change.before or "").encode("utf-8"))
        elif change.is_first:  # a backup can remain after an installation was removed by hand
            backup.unlink(missing_ok=True)
        if change.after is None:
            change.path.unlink()
        else:
            _create_folders(change.path)
            mode = 0o600 if change.before is None else change.path.stat().st_mode & 0o777
            put_file(change.path, change.after.encode("utf-8"))
            change.path.chmod(mode)
    except OSError as error:
        raise SettingsError(
            f"Cannot write {error.filename or change.path}: {error.strerror}. "
            "Correct its permissions, then run this command again."
        ) from error
    return backup if needs_backup else None


def _create_folders(path: Path) -> None:
    """Create the folders of a file, and record them so that `uninstall` can remove them."""
    missing = [folder for folder in path.parents if not folder.exists()]
    if missing:
        record = _state_file(path, "folders")
        make_folder(record.parent)
        put_file(record, json.dumps([str(folder) for folder in missing]).encode("ascii"))
        missing[0].mkdir(parents=True, exist_ok=True)


def delete_backups(changes: Sequence[Change]) -> None:
    """Delete what `install` saved for files that `uninstall` changed, and empty folders it made."""
    records = {_state_file(change.path, "folders"): change for change in changes}
    for record, change in records.items():
        _state_file(change.path, "bak").unlink(missing_ok=True)
        for folder in json.loads(_read(record) or "[]"):
            with contextlib.suppress(OSError):  # the user has put other files into the folder
                Path(folder).rmdir()
        record.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it contains the backups of other hosts
            record.parent.rmdir()
            record.parent.parent.rmdir()


def _state_file(path: Path, suffix: str) -> Path:
    """Return the file in which `install` saves something about a host's file."""
    import platformdirs

    key = hashlib.blake2b(str(path).encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    folder = platformdirs.user_state_path(SCRIPT, appauthor=False) / "host-files"
    return folder / f"{path.name}.{key}.{suffix}"


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
    entry = as_object(as_object(value.get(host.section)).get(REGISTERED_NAME))
    if not entry:
        return []
    command = entry.get("command", entry.get("cmd"))
    return [str(word) for word in as_list(command) or [command, *as_list(entry.get("args"))]]


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
    after = changed_text(format, before or "", value, path)
    return Change(path, before, after, is_first=_without_own_entries(host, old) == old)


def _removal(host: Host, path: Path, format: str) -> Change:
    """Return the change that removes this program's entries from a file."""
    before = _read(path)
    installed = value_of(format, before or "", path)
    value = _without_own_entries(host, installed)
    if value == installed:
        return Change(path, before, before)
    backup = _read(_state_file(path, "bak"))
    if backup is None and not _settings(value):
        return Change(path, before, None)
    # Equal bytes alone do not prove that the user changed nothing: the user may have added a
    # setting exactly as `install` would write it. So the values are compared as well.
    if (
        backup is not None
        and _settings(value) == _settings(value_of(format, backup, path))
        and changed_text(format, backup, installed, path) == before
    ):
        return Change(path, before, backup)
    return Change(path, before, changed_text(format, before or "", value, path))


def _settings(value: Mapping[str, Json]) -> dict[str, Json]:
    """Return `value` without empty settings, and without the version that a file of hooks needs."""
    return {key: item for key, item in value.items() if item and key != "version"}


def _with_server(
    host: Host, value: Mapping[str, Json], installation: Installation, path: Path
) -> tuple[dict[str, Json], dict[str, list[str]]]:
    """Return the configuration with the server, and the server's flags by name.

    Flags of an earlier installation are kept, unless the new installation has them as well.
    """
    section = value.get(host.section, {})
    if not isinstance(section, dict | None):
        raise SettingsError(
            f"{host.section!r} in {path} is not a table. Nothing was written. "
            "Correct the file, then run this command again."
        )
    old = as_object(section).get(REGISTERED_NAME)
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
    command = [*installation.program, *itertools.chain(*flags.values()), *subcommand]
    entry = {**as_object(old), **host.entry_for(command)}
    return {**value, host.section: {**as_object(section), REGISTERED_NAME: entry}}, flags


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
        words = [*command, event, *flags]
        is_windows = sys.platform == "win32"
        line = subprocess.list2cmdline(words) if is_windows else shlex.join(words)
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

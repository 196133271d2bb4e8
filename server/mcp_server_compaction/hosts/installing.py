"""Registering the server in a host's configuration, and taking it out again.

Nothing else writes a file of a host. Every change is worked out before the first file is written.
Each file is then replaced as a whole, after a copy of it was put aside.
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

_SCRIPT = "mcp-server-compaction"
_MODULE = "mcp_server_compaction"
# A hook's command is ours whoever wrote it: the script or the module, then `hook`.
_OUR_HOOK = re.compile(r"mcp[-_]server[-_]compaction(?:\.exe)?['\"]? hook\b")


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one file.

    Attributes:
        path: The file itself, links followed.
        before: Its text; None where there is none.
        after: Its new text; None where the file is removed.
        is_first: Whether `before` has nothing of ours, so that a copy of it is worth keeping.
    """

    path: Path
    before: str | None
    after: str | None
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class Installation:
    """What is to be registered.

    Attributes:
        program: The command that starts this program; its first word is an absolute path.
        flags: The server's flags, such as `--root DIR`.
        with_hooks: Whether the host's hooks are registered too.
    """

    program: Sequence[str]
    flags: Sequence[str] = ()
    with_hooks: bool = False


def this_program() -> list[str]:
    """The command by which a host without our `PATH` starts this program."""
    script = Path(sys.executable).parent / (_SCRIPT + (".exe" if sys.platform == "win32" else ""))
    if script.is_file():
        return [str(script)]
    found = shutil.which(_SCRIPT)
    return [str(Path(found).absolute())] if found else [sys.executable, "-m", _MODULE]


def plan_install(
    host: Host, scope: ConfigScope, places: UserFolders, installation: Installation
) -> list[Change]:
    """The changes of `install`; files that are as they should be are left out.

    Raises:
        SettingsError: The host has no such file or hooks, or a file cannot be read or changed.
    """
    path = config_file(host, scope, places)
    if installation.with_hooks and not host.hooks:
        raise SettingsError(
            f"{host.title} has no hooks. Install without --hooks: its model can then search and "
            "read the archive, and store outputs in it, but nothing is archived by itself."
        )
    values = {path: read_value(path, host.format)}
    values[path], flags = _with_server(host, values[path], installation, path)
    changes: list[Change] = []
    if host.hooks and (installation.with_hooks or runs_hooks(host, scope, places)):
        file = host.hooks.file(places, scope).resolve()
        # Server and hooks must write into one archive in the same way.
        hook_flags = [*flags.get("--archive", ()), *flags.get("--redaction", ())]
        command = [*installation.program, "hook"]
        hook_flags = ["--host", host.name, *hook_flags]
        if host.hooks.style == "plugin":
            changes.append(_plugin_change(file, command, hook_flags))
        else:
            value = values[file] if file in values else read_value(file, "json")
            own = _own_hooks(host.hooks, command, hook_flags)
            values[file] = _with_hooks(_without_hooks(value), own, host.hooks)
    changes += [
        _change(host, file, host.format if file == path else "json", value)
        for file, value in values.items()
    ]
    return [change for change in changes if change.before != change.after]


def plan_uninstall(host: Host, scope: ConfigScope, places: UserFolders) -> list[Change]:
    """The changes of `uninstall`.

    A file that nobody changed since is restored byte for byte; one that `install` made is removed.
    From any other, our entries are taken out.

    Raises:
        SettingsError: The host has no such file, or one cannot be read or changed.
    """
    formats = {config_file(host, scope, places): host.format}
    changes: list[Change] = []
    if host.hooks:
        file = host.hooks.file(places, scope).resolve()
        if host.hooks.style != "plugin":
            formats.setdefault(file, "json")
        elif _is_our_plugin(_read(file)):
            changes.append(Change(file, _read(file), None))
    changes += [_taken_out(host, file, format) for file, format in formats.items()]
    return [change for change in changes if change.before != change.after]


def apply_change(change: Change) -> Path | None:
    """Write one change; the place of the copy, if one was put aside.

    Raises:
        SettingsError: The file changed meanwhile, or cannot be written.
    """
    backup = backup_of(change.path)
    is_kept = change.is_first and change.before is not None
    try:
        if _read(change.path) != change.before:
            raise SettingsError(
                f"{change.path} was changed by another program just now. Run this again."
            )
        if is_kept:
            make_folder(backup.parent)
            put_file(backup, (change.before or "").encode("utf-8"))
        elif change.is_first:
            backup.unlink(missing_ok=True)  # of an installation that was taken out by hand
        if change.after is None:
            change.path.unlink()
            _remove_made_folders(change.path)
        else:
            _make_folders(change.path.parent)
            mode = 0o600 if change.before is None else change.path.stat().st_mode & 0o777
            put_file(change.path, change.after.encode("utf-8"))
            change.path.chmod(mode)
    except OSError as error:
        raise SettingsError(
            f"{error.filename or change.path} cannot be written: {error.strerror}. "
            f"Correct its permissions, then run this again."
        ) from error
    return backup if is_kept else None


def _make_folders(folder: Path) -> None:
    """Make a folder, and note which folders were not there: `uninstall` removes these."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    if missing:
        made = _made_folders()
        make_folder(made.parent)
        lines = (_read(made) or "") + "".join(f"{json.dumps(str(place))}\n" for place in missing)
        put_file(made, lines.encode("ascii"))
        folder.mkdir(parents=True, exist_ok=True)


def _remove_made_folders(path: Path) -> None:
    """Remove the folders of `path` that `install` made, as far as they are empty."""
    made = set(map(json.loads, (_read(_made_folders()) or "").splitlines()))
    for folder in path.parents:
        if str(folder) not in made or any(folder.iterdir()):
            return
        folder.rmdir()


def forget(changes: Sequence[Change]) -> None:
    """Remove what `install` put aside for these changes of `uninstall`, and its empty folders."""
    for change in changes:
        backup_of(change.path).unlink(missing_ok=True)
    made = _made_folders()
    if not any(Path(json.loads(line)).exists() for line in (_read(made) or "").splitlines()):
        made.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # it holds copies of other hosts' files
        made.parent.rmdir()
        made.parent.parent.rmdir()


def _made_folders() -> Path:
    return _copies_folder() / "made-folders"


def _copies_folder() -> Path:
    import platformdirs

    return platformdirs.user_state_path(_SCRIPT, appauthor=False) / "host-files"


def backup_of(path: Path) -> Path:
    """The place of the copy that is made before the first change of a host's file."""
    key = hashlib.blake2b(str(path).encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return _copies_folder() / f"{path.name}.{key}.bak"


def config_file(host: Host, scope: ConfigScope, places: UserFolders) -> Path:
    """The file in which the host looks for servers, links followed.

    Raises:
        SettingsError: It has none for that scope.
    """
    path = host.file(places, scope)
    if path is None:
        raise SettingsError(
            f"{host.title} has one configuration for the user and none for a project. "
            "Leave --scope out."
        )
    return path.resolve()


def read_value(path: Path, format: str) -> dict[str, Json]:
    """The value of a configuration; an empty one where there is no file.

    Raises:
        SettingsError: It cannot be read or parsed.
    """
    return value_of(format, _read(path) or "", path)


def installed_command(host: Host, value: Mapping[str, Json]) -> list[str]:
    """The command by which a configuration starts the server; empty where it has none."""
    entry = as_object(as_object(value.get(host.section)).get(REGISTERED_NAME))
    if not entry:
        return []
    command = entry.get("command", entry.get("cmd"))
    return [str(word) for word in as_list(command) or [command, *as_list(entry.get("args"))]]


def runs_hooks(host: Host, scope: ConfigScope, places: UserFolders) -> bool:
    """Whether the host runs our hooks.

    Raises:
        SettingsError: Their file cannot be read.
    """
    if host.hooks is None:
        return False
    text = _read(host.hooks.file(places, scope).resolve())
    return _is_our_plugin(text) or _OUR_HOOK.search(text or "") is not None


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise SettingsError(
            f"{path} is not UTF-8 text. Nothing was written: save it as UTF-8, then run this again."
        ) from None
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be read: {error.strerror}. Nothing was written."
        ) from error


def _change(host: Host, path: Path, format: str, value: dict[str, Json]) -> Change:
    before = _read(path)
    old = value_of(format, before or "", path)
    if value == old:
        return Change(path, before, before)
    after = changed_text(format, before or "", value, path)
    return Change(path, before, after, is_first=_without_ours(host, old) == old)


def _with_server(
    host: Host, value: Mapping[str, Json], installation: Installation, path: Path
) -> tuple[dict[str, Json], dict[str, list[str]]]:
    """The configuration with our server, and the server's flags.

    A flag that was chosen by an earlier installation stays, unless it is given again.
    """
    section = value.get(host.section, {})
    if not isinstance(section, dict | None):
        raise SettingsError(
            f"In {path}, {host.section!r} is no table of names. Nothing was written: correct the "
            "file, then run this again."
        )
    old = as_object(section).get(REGISTERED_NAME)
    if old is not None and not _is_ours(old):
        raise SettingsError(
            f"{path} has another server named {REGISTERED_NAME!r}. Nothing was written: "
            "rename it there, then run this again."
        )
    words = installed_command(host, value)
    earlier, command = _by_flag(words[_program_words(words) :])
    flags = earlier | _by_flag(installation.flags)[0]
    entry = host.entry([*installation.program, *itertools.chain(*flags.values()), *command])
    servers = {**as_object(section), REGISTERED_NAME: {**as_object(old), **entry}}
    return {**value, host.section: servers}, flags


def _program_words(command: Sequence[str]) -> int:
    """How many words of a command of ours name the program."""
    names = (at for at, word in enumerate(command, 1) if _SCRIPT in word or word == _MODULE)
    return next(names, len(command))


def _by_flag(words: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """By flag the words that give it, as `--root DIR` or `--root=DIR`; the command after them."""
    flags: dict[str, list[str]] = {}
    at = 0
    while at < len(words) and words[at].startswith("--"):
        name, has_value, _ = words[at].partition("=")
        size = 1 if has_value else 2
        flags.setdefault(name, []).extend(words[at : at + size])
        at += size
    return flags, [*words[at:]]


def _is_ours(entry: Json) -> bool:
    text = str(entry)
    return _SCRIPT in text or _MODULE in text


def _own_hooks(hooks: Hooks, command: Sequence[str], flags: Sequence[str]) -> dict[str, Json]:
    """By event, what the host is told to run."""
    groups: dict[str, Json] = {}
    for event, matcher in hooks.events.items():
        words = [*command, event, *flags]
        is_windows = sys.platform == "win32"
        line = subprocess.list2cmdline(words) if is_windows else shlex.join(words)
        handler: dict[str, Json] = {"command": line, "timeout": hooks.timeout}
        matched = {"matcher": matcher} if matcher else {}
        if hooks.style == "flat":
            groups[event] = {**handler, **matched}
        else:
            groups[event] = {**matched, "hooks": [{"type": "command", **handler}]}
    return groups


def _with_hooks(
    value: Mapping[str, Json], own: Mapping[str, Json], hooks: Hooks
) -> dict[str, Json]:
    table = as_object(value.get("hooks"))
    added = {event: [group, *as_list(table.get(event))] for event, group in own.items()}
    # Cursor reads no file without its version.
    versioned = {"version": 1} if hooks.style == "flat" else {}
    return {**versioned, **value, "hooks": {**table, **added}}


def _without_hooks(value: Mapping[str, Json]) -> dict[str, Json]:
    """`value` without our hooks, and without what they leave empty."""
    table = as_object(value.get("hooks"))
    left: dict[str, Json] = {}
    for event, groups in table.items():
        foreign = [one for one in map(_foreign_part, as_list(groups)) if one is not None]
        if not isinstance(groups, list) or foreign == groups:
            left[event] = groups
        elif foreign:
            left[event] = foreign
    if left == table:
        return dict(value)
    rest = {key: item for key, item in value.items() if key != "hooks"}
    return {**value, "hooks": left} if left else rest


def _foreign_part(group: Json) -> Json:
    """A group of hooks without ours; None where it held nothing else."""
    members = as_object(group)
    if _runs_us(members):
        return None
    handlers = as_list(members.get("hooks"))
    foreign = [one for one in handlers if not _runs_us(as_object(one))]
    if len(foreign) == len(handlers):
        return group
    return {**members, "hooks": foreign} if foreign else None


def _runs_us(handler: Mapping[str, Json]) -> bool:
    return _OUR_HOOK.search(str(handler.get("command", ""))) is not None


def _without_ours(host: Host, value: dict[str, Json]) -> dict[str, Json]:
    """`value` without our hooks and our server, and without what they leave empty."""
    value = _without_hooks(value)
    section = as_object(value.get(host.section))
    if not _is_ours(section.get(REGISTERED_NAME, "")):
        return value
    left = {name: item for name, item in section.items() if name != REGISTERED_NAME}
    rest = {key: item for key, item in value.items() if key != host.section}
    return {**value, host.section: left} if left else rest


def _taken_out(host: Host, path: Path, format: str) -> Change:
    """A file without our entries."""
    before = _read(path)
    installed = value_of(format, before or "", path)
    value = _without_ours(host, installed)
    if value == installed:
        return Change(path, before, before)
    saved = _read(backup_of(path))
    if saved is None:
        after = changed_text(format, before or "", value, path) if _settings(value) else None
        return Change(path, before, after)
    # Bytes alone do not tell who wrote a setting: the user may write as `install` does.
    is_unchanged = _settings(value) == _settings(value_of(format, saved, path))
    if is_unchanged and changed_text(format, saved, installed, path) == before:
        return Change(path, before, saved)
    return Change(path, before, changed_text(format, before or "", value, path))


def _settings(value: Mapping[str, Json]) -> dict[str, Json]:
    """The settings of a file, without empty ones and the version that a file of hooks needs."""
    return {key: item for key, item in value.items() if item and key != "version"}


def _plugin_change(file: Path, command: Sequence[str], flags: Sequence[str]) -> Change:
    text = files("mcp_server_compaction.hosts").joinpath("opencode_plugin.js").read_text("utf-8")
    values = {"COMMAND": command, "FLAGS": flags, "LARGE_CHARS": LARGE_CHARS}
    for name, value in values.items():
        text = text.replace(f'"@{name}@"', json.dumps(value))
    before = _read(file)
    if before is not None and not _is_our_plugin(before):
        raise SettingsError(
            f"{file} is a plugin of somebody else's. Nothing was written: rename it, then run this "
            "again."
        )
    return Change(file, before, text)


def _is_our_plugin(text: str | None) -> bool:
    return (text or "").startswith(f"// {_SCRIPT}: written by")

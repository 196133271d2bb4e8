"""Registering the server in a host's configuration, and taking it out again.

Nothing else writes a file of a host. What will be written is worked out first, for every file;
then each is replaced as a whole, after a copy of what was there was put aside.
"""

import hashlib
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import cast

from context_compaction.errors import SettingsError

from mcp_server_compaction.hosts import Json
from mcp_server_compaction.hosts.catalog import (
    REGISTERED_NAME,
    ConfigScope,
    Hooks,
    Host,
    UserFolders,
)
from mcp_server_compaction.hosts.config_text import JSON, TextFormat, changed_text, value_of
from mcp_server_compaction.hosts.hook_events import LARGE_CHARS, as_list, as_object

_SCRIPT = "mcp-server-compaction"
_MODULE = "mcp_server_compaction"
# A hook's command is ours whoever wrote it: the script or the module, then `hook`.
_OUR_HOOK = re.compile(r"mcp[-_]server[-_]compaction(?:\.exe)?['\"]? hook\b")


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one file.

    Attributes:
        path: The file itself, links followed.
        before: Its text; None where there is none.
        after: What it will be; None where it goes.
        is_first: Whether `before` holds nothing of ours, so that it is worth keeping a copy of.
    """

    path: Path
    before: str | None
    after: str | None
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class Installation:
    """What is to be registered.

    Attributes:
        program: How to start this program, as a list of arguments; the first one is absolute.
        flags: What the server is told beside, as `--root DIR`.
        with_hooks: Whether the host's hooks are registered too, where they are not yet.
    """

    program: Sequence[str]
    flags: Sequence[str] = ()
    with_hooks: bool = False


def this_program() -> list[str]:
    """How a host that knows no `PATH` starts this program."""
    script = Path(sys.executable).parent / (_SCRIPT + (".exe" if sys.platform == "win32" else ""))
    if script.is_file():
        return [str(script)]
    found = shutil.which(_SCRIPT)
    return [str(Path(found).absolute())] if found else [sys.executable, "-m", _MODULE]


def plan_install(
    host: Host, scope: ConfigScope, places: UserFolders, installation: Installation
) -> list[Change]:
    """What `install` would change; files that are as they should be are left out.

    Raises:
        SettingsError: The host has no such file or hooks, or a file cannot be read or changed.
    """
    path = config_file(host, scope, places)
    if installation.with_hooks and not host.hooks:
        raise SettingsError(
            f"{host.title} has no hooks. Install without --hooks: its model can then search and "
            "read the archive, and store outputs in it, but nothing is archived by itself."
        )
    texts: dict[Path, _Text] = {}
    server = _text_at(texts, path, host.format)
    chosen = _chosen_flags(host, server.value, installation, path)
    server.value = _with_server(host, server.value, [*installation.program, *chosen])
    changes: list[Change] = []
    if host.hooks and (installation.with_hooks or runs_hooks(host, scope, places)):
        file = host.hooks.file(places, scope).resolve()
        command = [*installation.program, "hook"]
        flags = ["--host", host.name, *_hook_flags(chosen)]
        if host.hooks.style == "plugin":
            changes.append(_plugin_change(file, command, flags))
        else:
            hooks = _text_at(texts, file, JSON)
            own = _own_hooks(host.hooks, command, flags)
            hooks.value = _with_hooks(_without_hooks(hooks.value, None), own, host.hooks)
    changes += [text.change() for text in texts.values()]
    return [change for change in changes if change.before != change.after]


def runs_hooks(host: Host, scope: ConfigScope, places: UserFolders) -> bool:
    """Whether the host runs our hooks already, which then keep to what the server is told."""
    if host.hooks is None:
        return False
    text = _read(host.hooks.file(places, scope).resolve())
    return _is_our_plugin(text) or _OUR_HOOK.search(text or "") is not None


def plan_uninstall(host: Host, scope: ConfigScope, places: UserFolders) -> list[Change]:
    """What `uninstall` would change.

    A file that nobody changed since becomes what it was, byte for byte; one that `install` made
    goes. From any other, what is ours is taken out.

    Raises:
        SettingsError: The host has no such file, or one cannot be read or changed.
    """
    texts: dict[Path, _Text] = {}
    _text_at(texts, config_file(host, scope, places), host.format)
    changes: list[Change] = []
    if host.hooks:
        file = host.hooks.file(places, scope).resolve()
        if host.hooks.style != "plugin":
            _text_at(texts, file, JSON)
        elif _is_our_plugin(_read(file)):
            changes.append(Change(file, _read(file), None))
    changes += [_taken_out(host, text) for text in texts.values() if text.before is not None]
    return [change for change in changes if change.before != change.after]


def apply_change(change: Change) -> Path | None:
    """Write one change; where the copy of what was there was put, if one was made now.

    Raises:
        SettingsError: The file changed meanwhile, or cannot be written.
    """
    try:
        if _read(change.path) != change.before:
            raise SettingsError(
                f"{change.path} was changed by another program just now. Run this again."
            )
        backup = backup_of(change.path)
        is_made = change.is_first and change.before is not None
        if change.is_first:
            forget_backup(change.path)  # of an installation that was taken out by hand
        if is_made:
            backup.parent.mkdir(parents=True, exist_ok=True)
            _replace(backup, change.before or "", mode=0o600)
        if change.after is None:
            change.path.unlink()
        else:
            change.path.parent.mkdir(parents=True, exist_ok=True)
            mode = change.path.stat().st_mode & 0o777 if change.before is not None else 0o600
            _replace(change.path, change.after, mode=mode)
    except OSError as error:
        raise SettingsError(
            f"{error.filename or change.path} cannot be written: {error.strerror}. "
            f"Correct its permissions, then run this again."
        ) from error
    return backup if is_made else None


def forget_backup(path: Path) -> None:
    """Remove the copy that was put aside, when the file is what it was."""
    with suppress(OSError):
        backup_of(path).unlink()


def backup_of(path: Path) -> Path:
    """Where the copy of a host's file lies that was made before the first change to it."""
    import platformdirs

    folder = platformdirs.user_state_path(_SCRIPT, appauthor=False) / "host-files"
    key = hashlib.blake2b(str(path).encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return folder / f"{path.name}.{key}.bak"


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


def installed_command(host: Host, value: Mapping[str, Json]) -> list[str] | None:
    """The command line by which a configuration starts the server; None where it has none."""
    entry = as_object(as_object(value.get(host.section)).get(REGISTERED_NAME))
    if not entry:
        return None
    command = entry.get("command", entry.get("cmd"))
    words = as_list(command) or [command, *as_list(entry.get("args"))]
    return [str(word) for word in words]


def has_hooks(value: Mapping[str, Json]) -> bool:
    """Whether a configuration runs our hooks."""
    return _without_hooks(value, None) != value


@dataclass(slots=True)
class _Text:
    """A file that is being changed."""

    path: Path
    format: TextFormat
    before: str | None
    value: dict[str, Json]
    is_first: bool

    def change(self) -> Change:
        old = self.before or ""
        if self.value == value_of(self.format, old, self.path):
            return Change(self.path, self.before, self.before)
        after = changed_text(self.format, old, self.value, self.path)
        return Change(self.path, self.before, after, is_first=self.is_first)


def _text_at(texts: dict[Path, _Text], path: Path, format: TextFormat) -> _Text:
    if path not in texts:
        before = _read(path)
        value = value_of(format, before or "", path)
        texts[path] = _Text(path, format, before, value, is_first=not _is_ours(before))
    return texts[path]


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


def _chosen_flags(
    host: Host, value: Mapping[str, Json], installation: Installation, path: Path
) -> Sequence[str]:
    """The server's flags; each that was chosen earlier stays, unless it is chosen anew now."""
    old = _table(value, host.section, path).get(REGISTERED_NAME)
    if old is not None and not _is_ours(old):
        raise SettingsError(
            f"{path} has another server named {REGISTERED_NAME!r}. Nothing was written: "
            "rename it there, then run this again."
        )
    earlier, command = _by_flag(_flags_of(installed_command(host, value) or []))
    chosen, _ = _by_flag(installation.flags)
    return [*itertools.chain(*(earlier | chosen).values()), *command]


def _hook_flags(flags: Sequence[str]) -> list[str]:
    """What of the server's flags its hooks are told: both must write into one archive alike."""
    named, _ = _by_flag(flags)
    return [*named.get("--archive", ()), *named.get("--redaction", ())]


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


def _with_server(host: Host, value: Mapping[str, Json], command: Sequence[str]) -> dict[str, Json]:
    section = as_object(value.get(host.section))
    entry = {**as_object(section.get(REGISTERED_NAME)), **host.entry([*command])}
    return {**value, host.section: {**section, REGISTERED_NAME: entry}}


def _table(value: Mapping[str, Json], name: str, path: Path) -> dict[str, Json]:
    found = value.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise SettingsError(
            f"In {path}, {name!r} is no table of names. Nothing was written: correct the file, "
            "then run this again."
        )
    return cast("dict[str, Json]", found)


def _is_ours(entry: Json) -> bool:
    text = str(entry)
    return _SCRIPT in text or _MODULE in text


def _flags_of(command: Sequence[str]) -> list[str]:
    """What follows the program in a command of ours."""
    for place, word in enumerate(command):
        if _SCRIPT in word or word == _MODULE:
            return list(command[place + 1 :])
    return []


def _own_hooks(hooks: Hooks, command: Sequence[str], flags: Sequence[str]) -> dict[str, Json]:
    """By event, what the host is told to run."""
    groups: dict[str, Json] = {}
    for event, matcher in hooks.events.items():
        line = _shell_line([*command, event, *flags])
        handler: dict[str, Json] = {"command": line, "timeout": hooks.timeout}
        matched = {"matcher": matcher} if matcher else {}
        if hooks.style == "flat":
            groups[event] = {**handler, **matched}
        else:
            groups[event] = {**matched, "hooks": [{"type": "command", **handler}]}
    return groups


def _shell_line(words: Sequence[str]) -> str:
    return subprocess.list2cmdline(words) if sys.platform == "win32" else shlex.join(words)


def _with_hooks(
    value: Mapping[str, Json], own: Mapping[str, Json], hooks: Hooks
) -> dict[str, Json]:
    table = dict(as_object(value.get("hooks")))
    for event, group in own.items():
        table[event] = [*as_list(table.get(event)), group]
    # Cursor reads no file without its version.
    versioned = {"version": 1} if hooks.style == "flat" else {}
    return {**versioned, **value, "hooks": table}


def _without_hooks(value: Mapping[str, Json], kept: Mapping[str, Json] | None) -> dict[str, Json]:
    """`value` without our hooks, and without what they leave empty unless `kept` has it."""
    table = as_object(value.get("hooks"))
    had = (kept or {}).get("hooks")
    left: dict[str, Json] = {}
    for event, groups in table.items():
        items = [_without_own(group) for group in as_list(groups)]
        foreign = [item for item in items if item is not None]
        if not isinstance(groups, list):
            left[event] = groups
        elif foreign or foreign == groups or event in as_object(had):
            left[event] = foreign
    if left == table:
        return dict(value)
    rest = {key: item for key, item in value.items() if key != "hooks"}
    return {**value, "hooks": left} if left or had is not None else rest


def _without_own(group: Json) -> Json:
    """A group of hooks without ours; None where it held nothing else."""
    members = as_object(group)
    if _OUR_HOOK.search(_command_of(members)):
        return None
    handlers = as_list(members.get("hooks"))
    foreign = [one for one in handlers if not _OUR_HOOK.search(_command_of(one))]
    if len(foreign) == len(handlers):
        return group
    return {**members, "hooks": foreign} if foreign else None


def _command_of(handler: Json) -> str:
    return str(as_object(handler).get("command", ""))


def _taken_out(host: Host, text: _Text) -> Change:
    """A file without what is ours."""
    saved = _read(backup_of(text.path))
    kept = value_of(text.format, saved, text.path) if saved is not None else None
    value = _without_hooks(text.value, kept)
    section = as_object(value.get(host.section))
    if _is_ours(section.get(REGISTERED_NAME, "")):
        left = {name: item for name, item in section.items() if name != REGISTERED_NAME}
        value = {**value, host.section: left}
        if not left and (kept is None or host.section not in kept):
            del value[host.section]
    if value == text.value:
        return Change(text.path, text.before, text.before)
    if saved is not None and changed_text(text.format, saved, text.value, text.path) == text.before:
        return Change(text.path, text.before, saved)
    if saved is None and not {key for key in value if key != "version"}:
        return Change(text.path, text.before, None)
    after = changed_text(text.format, text.before or "", value, text.path)
    return Change(text.path, text.before, after)


def _plugin_change(file: Path, command: Sequence[str], flags: Sequence[str]) -> Change:
    text = files("mcp_server_compaction.hosts").joinpath("opencode_plugin.js").read_text("utf-8")
    for name, value in (("COMMAND", command), ("FLAGS", flags), ("LARGE_CHARS", LARGE_CHARS)):
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


def _replace(path: Path, text: str, *, mode: int) -> None:
    """Put a file in the place of `path` in one step, so that nobody ever reads half of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise

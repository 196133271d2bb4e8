"""The machine's ledger of a summary: plan, side effects, failures and files, one line a fact."""

from collections.abc import Iterator

from context_compaction.activity.digest import CommandRun, Digest
from context_compaction.activity.file_ledger import FileEntry

_MANY_PATHS = 24
# So much of a file's hash tells two states of it apart.
HASH_CHARS = 8
_EFFECT_STATES = {True: "failed", False: "done, do not repeat", None: "unanswered"}
_RUN_STATES = {None: "unanswered", False: "ok"}


def lines(digest: Digest) -> list[str]:
    """One line a fact, most wanted first, newest first among equals."""
    found = [f"- plan: {item}" for item in digest.plan]
    if digest.in_flight:
        found.append("- in flight: " + "; ".join(digest.in_flight[-5:]))
    found.extend(_effects(digest))
    files = list(reversed(digest.files))
    touched = [file for file in files if not file.is_only_read][:_MANY_PATHS]
    found.extend(f"- file: {_file(file)}" for file in touched)
    effects = {effect.command for effect in digest.effects}
    open_runs = [run for run in digest.runs if run.failed and not run.resolved]
    open_runs = [run for run in open_runs if run.command not in effects]
    found.extend(f"- failed: {_with_error(run)}" for run in reversed(open_runs))
    found.extend(f"- failed: {error}" for error in reversed(digest.errors))
    if read := [file.path for file in files if file.is_only_read][:_MANY_PATHS]:
        found.append("- read: " + ", ".join(read))
    for run in reversed(digest.runs):
        if run.command in effects or (run.failed and not run.resolved):
            continue
        state = "failed, later passed" if run.failed else _RUN_STATES[run.failed]
        found.append(f"- ran ({state}): {run.command}")
    return list(dict.fromkeys(found))


def short_lines(digest: Digest) -> list[str]:
    """What a summary with little room must not leave out: what was done, and to which files."""
    found = list(_effects(digest))
    touched = [file for file in reversed(digest.files) if not file.is_only_read]
    if touched:
        last = (f"{file.path} {file.states[-1]}" for file in touched[:_MANY_PATHS])
        found.append(f"- files: {', '.join(last)}")
    return found


def _effects(digest: Digest) -> Iterator[str]:
    for effect in reversed(digest.effects):
        yield f"- {_EFFECT_STATES[effect.failed]}: {_with_error(effect)}"


def _file(file: FileEntry) -> str:
    """The path, what was done to it, and the hash of its text where that is known."""
    known = f"; sha256 {file.sha256[:HASH_CHARS]}" if file.sha256 else ""
    return f"{file.path} ({', '.join(file.states)}{known})"


def _with_error(run: CommandRun) -> str:
    return f"{run.command} -> {run.error}" if run.error else run.command

"""The machine's ledger of a summary: plan, side effects, failures and files, one line a fact."""

from context_compaction.digest import Digest, Run

_MANY_PATHS = 24
_EFFECT_STATES = {True: "failed", False: "done, do not repeat", None: "unanswered"}
_RUN_STATES = {None: "unanswered", False: "ok"}


def lines(digest: Digest) -> list[str]:
    """One line a fact, most wanted first, newest first among equals."""
    found = [f"- plan: {item}" for item in digest.plan]
    if digest.in_flight:
        found.append("- in flight: " + "; ".join(digest.in_flight[-5:]))
    found.extend(
        f"- {_EFFECT_STATES[effect.failed]}: {_with_error(effect)}"
        for effect in reversed(digest.effects)
    )
    for title, paths in (
        ("changed", digest.edited),
        ("created", digest.written),
        ("deleted", digest.deleted),
    ):
        if paths:
            found.append(f"- {title}: " + ", ".join(list(reversed(paths))[:_MANY_PATHS]))
    effects = {effect.command for effect in digest.effects}
    open_runs = [run for run in digest.runs if run.failed and not run.resolved]
    open_runs = [run for run in open_runs if run.command not in effects]
    found.extend(f"- failed: {_with_error(run)}" for run in reversed(open_runs))
    found.extend(f"- failed: {error}" for error in reversed(digest.errors))
    if digest.read:
        found.append("- read: " + ", ".join(list(reversed(digest.read))[:_MANY_PATHS]))
    for run in reversed(digest.runs):
        if run.command in effects or (run.failed and not run.resolved):
            continue
        state = "failed, later passed" if run.failed else _RUN_STATES[run.failed]
        found.append(f"- ran ({state}): {run.command}")
    return found


def _with_error(run: Run) -> str:
    return f"{run.command} -> {run.error}" if run.error else run.command

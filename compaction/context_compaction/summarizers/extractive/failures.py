"""Commands and calls that failed, and what was changed until they passed."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from context_compaction.summarizers.extractive.turns import Action, Turn

_ERROR_CHARS = 200
_REFUSAL_CHARS = 600
_MOST_CHANGED = 4
_PROGRAM_WORDS = 2


@dataclass(frozen=True, slots=True)
class Failure:
    """A command or a call that failed in a turn, once or again and again.

    Attributes:
        action: Its last failure.
        passed: Number of the message in which it passed in the same turn; None where it did not.
        changed: The files that were changed in between.
    """

    action: Action
    passed: int | None = None
    changed: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """The failure on one line, and what passed it."""
        action = self.action
        if action.is_refused:
            said = action.error[:_REFUSAL_CHARS]
            why = f' ("{said}", by what the host says)' if said else ""
            return f"refused by the user, not done: {action.label}{why}"
        line = f"failed: {action.keys[-1] or action.label} -> {action.error[:_ERROR_CHARS]}"
        if self.passed is None:
            return line
        changed = ", ".join(self.changed[-_MOST_CHANGED:])
        return f"{line}; passed [{self.passed}] after edits of {changed}"

    @property
    def is_telling(self) -> bool:
        """Whether it says later what broke and what mended it, or what was not done."""
        if self.action.is_refused:
            return True
        if self.passed is None:
            return self.action.effect or self.action.use.kind != "execute"
        return bool(self.changed) and not self.action.is_compound


def failures_in(turn: Turn, names: Mapping[str, str]) -> list[Failure]:
    """The failures of a turn, each command and tool with all its failures until it passed."""
    found: list[Failure] = []
    # By what ends them, each with how many changes there were before it failed first.
    failing: dict[str, tuple[int, Action]] = {}
    changed: list[str] = []
    for action in turn.actions:
        keys = _keys_of(action)
        if action.is_refused:
            found.append(Failure(action))
        elif keys and action.failed and action.error:
            failing[keys[-1]] = failing.get(keys[-1], (len(changed), action))[0], action
        elif keys and action.failed is False:
            for key in keys:
                start, failed = failing.pop(key, (0, None))
                if failed:
                    since = tuple(dict.fromkeys(changed[start:]))
                    found.append(Failure(failed, action.number, since))
        elif not action.failed:
            changed += [names[made.path] for made in action.changes if made.path in names]
    return [*found, *(Failure(action) for _, action in failing.values())]


def open_failures(newest: Sequence[Turn], keys_later: Set[str] | None) -> list[Failure]:
    """Those of the newest turn that nothing passed, and that are not tried again later.

    What was committed after them was fit for it; `keys_later` is None once another turn runs.
    """
    if keys_later is None:
        return []
    tried = set(map(_program_of, keys_later))
    done = (one.number for turn in newest for one in turn.actions if one.effect and one.text)
    done_at = max(done, default=-1)
    return [
        failure
        for turn in newest
        for failure in failures_in(turn, {})
        if failure.passed is None
        and not failure.action.is_refused
        and failure.action.number >= done_at
        and tried.isdisjoint(map(_program_of, failure.action.keys))
    ]


def _keys_of(action: Action) -> list[str]:
    """By what the failure of a call is ended: by a run of one of its programs, by the same tool.

    What a tool should have changed, another call of it does not.
    """
    if action.use.kind == "execute":
        return [] if action.is_look else [*map(_program_of, action.keys)]
    if action.use.kind == "other":
        return [action.label if action.effect else action.name]
    return []


def _program_of(key: str) -> str:
    """The program of a command: a run that passes ends its failure, whatever the arguments."""
    words = [word for word in key.split() if not word.startswith("-")]
    return " ".join(words[:_PROGRAM_WORDS])

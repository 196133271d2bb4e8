"""Commands and calls that failed, and what was changed until they passed."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from context_compaction.summarizers.extractive.turns import Action, Turn

_ERROR_CHARS = 200
_REFUSAL_CHARS = 600
_MOST_CHANGED = 4
_PROGRAM_WORDS = 2


@dataclass(frozen=True, slots=True)
class Failure:
    """A command or a call that failed, once or again and again.

    Attributes:
        turn: Position of the turn in which it failed last.
        action: Its last failure.
        times: How often.
        passed: Number of the message in which it passed; None where it did not.
        changed: The files that were changed in between.
    """

    turn: int
    action: Action
    times: int = 1
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
        again = f" ({self.times} times)" if self.times > 1 else ""
        line = f"failed{again}: {action.shown_key or action.label} -> {action.error[:_ERROR_CHARS]}"
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


def failures_of(turns: Sequence[Turn], names: Mapping[str, str]) -> list[Failure]:
    """The failures, oldest first, each command and tool with all its failures until it passed.

    What passed in a later turn says nothing of its cure.
    """
    found: list[Failure] = []
    failing: dict[str, Failure] = {}
    for at, turn in enumerate(turns):
        for action in turn.actions:
            keys = _keys_of(action)
            if action.is_refused:
                found.append(Failure(at, action))
            elif keys and action.failed and action.error:
                before = failing.get(keys[-1])
                times, changed = (before.times, before.changed) if before else (0, ())
                failing[keys[-1]] = Failure(at, action, times + 1, changed=changed)
            elif keys and action.failed is False:
                passed = [failing.pop(key, None) for key in keys]
                found += [
                    replace(one, passed=action.number)
                    for one in passed
                    if one is not None and one.turn == at
                ]
            elif not action.failed:
                for name in [names[made.path] for made in action.changes if made.path in names]:
                    for key, failure in failing.items():
                        kept = tuple(path for path in failure.changed if path != name)
                        failing[key] = replace(failure, changed=(*kept, name))
    return sorted((*found, *failing.values()), key=lambda failure: failure.turn)


def _keys_of(action: Action) -> list[str]:
    """By what the failure of a call is ended: by a run of one of its programs, by the same tool.

    What a tool should have changed, another call of it does not.
    """
    if action.use.kind == "execute":
        return [*map(_program_of, action.keys)]
    if action.use.kind == "other":
        return [action.label if action.effect else action.name]
    return []


def open_failures(
    failures: Sequence[Failure], turns: Sequence[Turn], keys_later: Set[str] | None
) -> list[Failure]:
    """Those of the newest turn that nothing passed, and that are not tried again later.

    What was committed after them was fit for it; `keys_later` is None once another turn runs.
    """
    if keys_later is None:
        return []
    tried = set(map(_program_of, keys_later))
    done = (one.number for turn in turns[-1:] for one in turn.actions if one.effect and one.text)
    done_at = max(done, default=-1)
    return [
        failure
        for failure in failures
        if failure.turn == len(turns) - 1
        and failure.passed is None
        and not failure.action.is_refused
        and failure.action.number >= done_at
        and tried.isdisjoint(map(_program_of, failure.action.keys))
    ]


def _program_of(key: str) -> str:
    """The program of a command: a run that passes ends its failure, whatever the arguments."""
    words = key.split()
    return " ".join([word for word in words if not word.startswith("-")][:_PROGRAM_WORDS])

"""A circuit breaker for each session: a model that keeps failing is left alone for a while.

Its state is what the session's calls left of their writers, so every process sees the same, and
it survives a restart. (Claude Code found 1,279 sessions with 50 or more failures in a row, which
cost 250,000 calls a day.)
"""

from collections.abc import Sequence

from context_compaction.session.state import SessionState


def wait_seconds(
    states: Sequence[SessionState],
    now_seconds: float,
    *,
    max_failures: int,
    cool_down_seconds: float,
) -> float:
    """How long the session's model is still left alone; 0 where it may be asked.

    Args:
        states: What the session's calls left, oldest first.
        now_seconds: The time, as Unix time.
        max_failures: So many failures in a row open the breaker; 0 is never.
        cool_down_seconds: After this one call is let through; if that fails too, the wait begins
            anew.
    """
    failures = 0
    last_seconds = 0.0
    for call in (state.model for state in reversed(states)):
        if call is None:
            continue  # nobody asked a model
        if not call.failed:
            break
        last_seconds = last_seconds or call.at_seconds
        failures += 1
        if failures == max_failures:
            return max(0.0, last_seconds + cool_down_seconds - now_seconds)
    return 0.0

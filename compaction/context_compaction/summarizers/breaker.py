"""A circuit breaker for each session: a model that keeps failing is left alone for a while.

Its state is what the session's receipts say of their writers, so every process sees the same, and
it survives a restart. (Claude Code found 1,279 sessions with 50 or more failures in a row, which
cost 250,000 calls a day.)
"""

from collections.abc import Sequence
from typing import cast

from context_compaction.messages import JsonObject


def wait_seconds(
    receipts: Sequence[JsonObject],
    now_seconds: float,
    *,
    max_failures: int,
    cool_down_seconds: float,
) -> float:
    """How long the session's model is still left alone; 0 where it may be asked.

    Args:
        receipts: The session's receipts, oldest first.
        now_seconds: The time, as Unix time.
        max_failures: So many failures in a row open the breaker; 0 is never.
        cool_down_seconds: After this one call is let through; if that fails too, the wait begins
            anew.
    """
    failures = 0
    last_seconds = 0.0
    for receipt in reversed(receipts):
        report = cast("JsonObject", receipt.get("model") or {})
        if not report.get("requested"):
            continue  # nobody asked a model
        if not report.get("failure"):
            break
        last_seconds = last_seconds or float(report.get("at_seconds", 0))
        failures += 1
        if failures == max_failures:
            return max(0.0, last_seconds + cool_down_seconds - now_seconds)
    return 0.0

"""The token that ties a summary which a host wrote to the messages it was asked to summarise.

It names the range of the transcript and holds a hash of the archived messages in it, together
with the session and when it expires. So it is checked against the archive: no key has to be
kept, it holds across restarts and processes, and a summary of another conversation is recognised.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from context_compaction.errors import SettingsError
from context_compaction.messages.history_hash import history_hash
from context_compaction.messages.model import JsonObject
from context_compaction.messages.placeholders import Span

# A person may have to approve the host's request to its model.
_LIFETIME_SECONDS = 3_600
_TOKEN = re.compile(r"c2-(\d{1,12})-(\d{1,12})-([0-9a-f]{0,12})-(\d{1,12})-([0-9a-f]{24})")


@dataclass(frozen=True, slots=True)
class Continuation:
    """A token, parsed but not yet checked against the archive."""

    span: Span
    expires_seconds: int
    digest: str


def issue(span: Span, originals: Sequence[JsonObject], now_seconds: float) -> str:
    """The token for a summary of `originals`, which the archive holds in `span`."""
    expires = int(now_seconds) + _LIFETIME_SECONDS
    digest = _digest(span, originals, expires)
    return f"c2-{span.start_seq}-{span.stop_seq}-{span.head}-{expires}-{digest}"


def parse_continuation(token: str, session_id: str, now_seconds: float) -> Continuation:
    """The parsed token of `session_id`.

    Raises:
        SettingsError: It is none of ours, or has expired.
    """
    found = _TOKEN.fullmatch(token)
    if found is None:
        raise SettingsError(
            f"continuation is {token[:60]!r}. Give it exactly as summary_request had it, or leave "
            "it out."
        )
    start, stop, expires = (int(found[number]) for number in (1, 2, 4))
    if now_seconds > expires:
        raise SettingsError(
            "The continuation has expired: the conversation may have moved on since. Call again "
            "without summary and continuation to get a new request."
        )
    return Continuation(Span(session_id, start, stop, found[3]), expires, found[5])


def verify(continuation: Continuation, originals: Sequence[JsonObject]) -> None:
    """Check the token against `originals`, which the archive holds in its span.

    Raises:
        SettingsError: It was issued for something else.
    """
    if _digest(continuation.span, originals, continuation.expires_seconds) != continuation.digest:
        raise SettingsError(
            f"The continuation does not belong to session {continuation.span.session_id}: the "
            "summary would stand for another conversation. Call again without summary and "
            "continuation to get a new request."
        )


def _digest(span: Span, originals: Sequence[JsonObject], expires_seconds: int) -> str:
    history = history_hash(originals)
    named = [span.session_id, span.start_seq, span.stop_seq, expires_seconds, history]
    return hashlib.blake2b(json.dumps(named).encode("ascii"), digest_size=12).hexdigest()

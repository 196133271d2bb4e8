"""Undo a compaction: the list as it was before it, followed by everything since.

Or undo only a part of it: single messages and outputs are put back into the list.

Nothing is deleted. The archive stores the list as a context of its own, so no later call replaces
it by the undone context again. The mode "auto" leaves it alone until it exceeds the window.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace

from anyio import to_thread

from context_compaction.archive.archive import Archive
from context_compaction.budget import TokenBudget, token_budget_of, window_of
from context_compaction.compaction_state import CompactionState, with_state
from context_compaction.context import Session
from context_compaction.errors import SettingsError
from context_compaction.formats import LIST_CACHE
from context_compaction.messages.cache_control import without_cache_markers
from context_compaction.messages.history_hash import chain_hashes, content_hash
from context_compaction.messages.model import JsonObject
from context_compaction.policies import policy_named
from context_compaction.result import CompactResult
from context_compaction.session.put_back import made_valid, with_originals
from context_compaction.settings import override
from context_compaction.tokens.counter import counter_for


async def undo(session: Session, archive: Archive) -> CompactResult:
    """Return the session's list without the compaction that the request names, and store it.

    If the request names originals to restore, only they are put back into the list.

    Raises:
        NotFoundError: The list did not go through that compaction, or has no such originals.
        QueryError: The pointer to restore identifies neither messages nor an output.
        SettingsError: The list does not fit the window; nothing was changed.
        ArchiveError: The list cannot be read or stored.
    """
    request, session_id = session.request, session.session_id
    if request.restore is not None:
        entries, seqs = await with_originals(request.restore, session, archive)
        done: JsonObject = {"restore": request.restore, "restored_messages": seqs}
        listed = session.heads[-1]  # so a later undo of a compaction finds this list
    else:
        number, entries = await archive.list_before(session_id, request.undo, session.heads)
        done = {"undone": number}
        listed = chain_hashes([entry.content for entry in entries])[-1]
    # Hosts move their cache markers at every call, and providers limit their number. Two messages
    # may differ only in the form of their text and have the same hash, so the number counts, too.
    raws = session.given.payload
    keys = zip(session.appended.seqs, map(content_hash, raws), strict=True)
    given = dict(zip(keys, raws, strict=True))
    payload = [
        given.get((e.original_seq, e.content)) or without_cache_markers(e.raw) for e in entries
    ]
    if request.restore is not None:
        entries, payload = await to_thread.run_sync(made_valid, entries, payload, session)
    budget = await to_thread.run_sync(_budget, payload, session)
    before = budget.before
    if before.upper > budget.trigger_tokens:
        what = request.restore or f"all that compaction {done['undone']} removed"
        raise SettingsError(
            f"With {what} the list has up to {before.upper:,} tokens, but the window has room for "
            f"{budget.trigger_tokens:,}. Undo a later compaction, pass a larger `context_window`, "
            "or restore or read single messages by their pointers."
        )
    tokens = budget.report(before, "undo")
    receipt: JsonObject = {
        "session_id": session_id,
        "format": session.given.format,
        "status": "undone",
        **done,
        "tokens": asdict(tokens),
        "context_window": window_of(request),
        "counted_for": request.model,
    }
    await archive.commit(
        session_id,
        receipt=with_state(receipt, CompactionState(mode="undo")),
        context=entries,
        head=session.history,
        listed=listed,
    )
    return CompactResult(
        session_id=session_id,
        format=session.given.format,
        status="undone",
        messages=payload,
        changed=payload != list(session.given.payload),
        fits=True,
        tokens=tokens,
        recognised=session.recognised,
        receipt=receipt,
    )


def _budget(payload: Sequence[JsonObject], session: Session) -> TokenBudget:
    request = replace(session.request, usage=None, usage_message_index=None)
    settings = override(policy_named(request.policy).settings, request.settings)
    messages = LIST_CACHE.read(payload, session.given.format).messages
    count = counter_for(request.model, estimator=settings.estimator)
    return token_budget_of(request, settings, messages, count, fills_window=True)

"""What a session and those of its sub-agents hold together, and the budget of each."""

from collections.abc import Sequence
from dataclasses import dataclass

from anyio import to_thread
from context_compaction import formats
from context_compaction.archive import Archive, SessionInfo
from context_compaction.messages.model import JsonObject

# More sub-agents than this are counted in the total of sessions alone.
MAX_MEMBERS = 50


@dataclass(frozen=True, slots=True)
class Member:
    """One session of a family.

    Attributes:
        info: What is known of it.
        context_tokens: Estimate of what its context now contains.
        trigger_tokens: Its newest compaction's trigger; None before the first one.
        target_tokens: The same for the target.
    """

    info: SessionInfo
    context_tokens: int
    trigger_tokens: int | None = None
    target_tokens: int | None = None


async def family_of(archive: Archive, session_id: str) -> list[Member]:
    """The session and those that descend from it, oldest first, at most `MAX_MEMBERS`.

    Raises:
        ArchiveError: The archive fails.
    """
    infos, _ = await archive.sessions(limit=MAX_MEMBERS, family_of=session_id)
    infos.sort(key=lambda info: (info.session_id != session_id, info.first_seconds))
    return [await _member(archive, info) for info in infos]


def family_document(members: Sequence[Member]) -> JsonObject:
    """The family as a resource shows it."""
    return {
        "message_count": sum(member.info.message_count for member in members),
        "context_tokens": sum(member.context_tokens for member in members),
        "sessions": [
            {
                "session_id": member.info.session_id,
                "parent_session_id": member.info.parent_session_id,
                "message_count": member.info.message_count,
                "context_tokens": member.context_tokens,
                "trigger_tokens": member.trigger_tokens,
                "target_tokens": member.target_tokens,
            }
            for member in members
        ],
    }


async def _member(archive: Archive, info: SessionInfo) -> Member:
    format_name, context = await archive.context(info.session_id)
    tokens = await to_thread.run_sync(_tokens, context, format_name)
    receipts = await archive.receipts(info.session_id)
    figures: list[JsonObject] = [receipt["tokens"] for receipt in receipts if "tokens" in receipt]
    if not figures:
        return Member(info, tokens)
    return Member(info, tokens, figures[-1]["trigger"], figures[-1]["target"])


def _tokens(context: Sequence[JsonObject], format_name: str) -> int:
    from context_compaction.tokens.counter import counter_for

    return counter_for(None).messages(formats.parse(context, format=format_name)) if context else 0

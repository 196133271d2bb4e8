"""The request of a compaction: window, policy, mode and options."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from context_compaction.errors import SettingsError
from context_compaction.messages.model import JsonObject

Mode: TypeAlias = Literal["auto", "plan", "micro", "full", "reactive", "record", "undo"]
SummarizerName: TypeAlias = Literal["auto", "extractive", "host"]
Detail: TypeAlias = Literal["short", "normal", "full"]

# The share of the tokens that a summary of a range, or a compaction, leaves at each detail.
DETAIL_SHARES: Mapping[Detail, float] = {"short": 0.1, "normal": 0.25, "full": 0.5}

# The tenant of all sessions if a process serves only one tenant.
DEFAULT_TENANT = "default"

_SESSION_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


@dataclass(frozen=True, slots=True)
class CompactRequest:
    """Options of one compaction. The defaults suit a 200K window.

    Attributes:
        mode: "auto" does what the budget requires. "micro" clears now, without a summary. "full"
            summarizes now. "reactive" follows a prompt that the provider rejected as too long.
            "record" only archives and counts. "plan" reports what "auto" would do, and writes
            nothing. "undo" returns the list as it was before a compaction, followed by everything
            since. Then "auto" leaves that list alone until it exceeds the window.
        format: Name of the message format; None detects it.
        session_id: ID of the session in the archive; None derives one from the first messages.
        parent_session_id: ID of the session that started this one, for a sub-agent.
        model: Name of the model, which decides the window and the tokenizer.
        context_window: Tokens of the window; overrides the model's own.
        max_output_tokens: Tokens that the model's response may take.
        target_tokens: Target in tokens, instead of the policy's. With `context_window`, compaction
            still starts at the window's trigger; without it, at once.
        detail: How much a compaction leaves, instead of a target in tokens: "short" a tenth,
            "normal" a quarter, "full" half. That is a share of the summarized messages with
            `range`, of the whole list with mode "full", else of the trigger.
        range: First and last index, from 0, of the messages to summarize now; all others stay. The
            range grows to whole pairs of calls and results. `target_tokens` then limits the
            summary. None summarizes what the budget requires.
        overhead_tokens: Tokens of the request besides the messages, if `system` and `tools` are
            not given.
        system: The system prompt, as a string or in the provider's form. It is counted, not
            edited, and no summary repeats it. User rules that contradict it are marked.
        tools: The tool definitions. They are counted, not edited, and decide between formats that
            both fit the messages.
        usage: The provider's last usage report, which anchors the count.
        usage_message_index: Index of the message that `usage` was reported for.
        policy: Name of the policy.
        settings: Constants of the policy to change, by name.
        pinned: Texts that every summary carries verbatim, from this call on.
        pinned_messages: Indices of messages whose text is carried once they leave the list.
        snip_messages: Indices of messages to remove now. A line with a pointer replaces each gap.
        unpin: Pinned texts, or pin IDs from a receipt, to remove from later summaries.
        instructions: Focus of the summary.
        summarizer: The writer of the summary. "auto" uses the model given to `compact`, if any;
            "extractive" uses no model; "host" asks the caller for the text.
        summary: The summary's text, written by the host.
        continuation: The token of `SummaryPrompt`, which ties `summary` to the replaced messages.
        idle_seconds: Seconds since the last activity before this call.
        prepare: Whether to store the outcome instead of returning it; see `Prepared`.
        apply: A `prepared_id`: replace the messages that it was prepared for, and nothing else.
        undo: Number of the compaction that the mode "undo" takes back, as its receipt is numbered;
            None for the newest.
        restore: With the mode "undo": instead of a compaction, the pointer of messages or of an
            output whose originals are put back into the list.
    """

    mode: Mode = "auto"
    format: str | None = None
    session_id: str | None = None
    parent_session_id: str | None = None
    model: str | None = None
    context_window: int | None = None
    max_output_tokens: int | None = None
    target_tokens: int | None = None
    detail: Detail | None = None
    range: tuple[int, int] | None = None
    overhead_tokens: int = 0
    system: Any = None
    tools: Any = None
    usage: JsonObject | None = None
    usage_message_index: int | None = None
    policy: str = "default"
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    pinned: tuple[str, ...] = ()
    pinned_messages: tuple[int, ...] = ()
    snip_messages: tuple[int, ...] = ()
    unpin: tuple[str, ...] = ()
    instructions: str = ""
    summarizer: SummarizerName = "auto"
    summary: str | None = None
    continuation: str | None = None
    idle_seconds: float = 0.0
    prepare: bool = False
    apply: str | None = None
    undo: int | None = None
    restore: str | None = None


def check_session_id(session_id: str) -> str:
    """Return `session_id` if pointers can contain it.

    Raises:
        SettingsError: The ID has other characters or a wrong length.
    """
    if _SESSION_ID.fullmatch(session_id) is None:
        raise SettingsError(
            f"Invalid session_id {session_id[:140]!r}. Use 1 to 128 letters, digits and _ . : -"
        )
    return session_id

"""The request of a compaction: window, policy, mode and options."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from context_compaction.errors import SettingsError
from context_compaction.messages.model import JsonObject

Mode: TypeAlias = Literal["auto", "plan", "micro", "full", "reactive", "record"]
SummarizerName: TypeAlias = Literal["auto", "extractive", "host"]

DEFAULT_TENANT = "default"  # whose sessions they are where a process serves one tenant alone

_SESSION_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


@dataclass(frozen=True, slots=True)
class CompactRequest:
    """How to compact. Every field has the default that a newcomer wants.

    Attributes:
        mode: "auto" does what the budget requires; "micro" clears now, without replacing history;
            "full" summarises now; "reactive" is for a request that the provider refused as too
            long; "record" archives and counts; "plan" reports what "auto" would do and writes
            nothing.
        format: Name of the message format; None finds it from the shape.
        session_id: The conversation's name in the archive; None derives one from its beginning.
        parent_session_id: The session that started this one, for a sub-agent.
        model: Name of the model, for its window and tokenizer.
        context_window: Tokens; overrides the model's own.
        max_output_tokens: Tokens that the answer may take.
        target_tokens: Bring the context down to this instead of the policy's target. With a
            `context_window` that still happens at the window's trigger; without one, at once.
        overhead_tokens: What the request contains besides the messages, when `system` and
            `tools` are not given.
        system: The system prompt, as a string or in the provider's form; counted, not edited. It
            is sent with every call, so no summary repeats it; system messages inside the list stay
            where they are. What the user writes against one of its rules is carried, and marked.
        tools: The tool definitions; counted, not edited. Where the messages leave the format open,
            theirs is taken.
        usage: The provider's last usage report, the anchor of the count ...
        usage_message_index: ... and the message of the list it was reported for.
        policy: Name of the policy.
        settings: Constants of the policy to change, by name.
        pinned: Texts that every summary carries verbatim, from this call on.
        pinned_messages: Places of messages in this list whose text is carried from the moment they
            leave.
        snip_messages: Places of messages in this list that are left out now, whatever the budget
            asks for; a line with a pointer replaces each gap.
        unpin: Texts, or ids from a receipt, that are no longer carried, from this call on.
        instructions: Topics that a summary should weigh more.
        summarizer: Who writes the summary: "auto" takes the model that `compact` was given, if
            any; "extractive" takes none; "host" leaves it to the caller.
        summary: The summary's prose, written by the host.
        continuation: The token of `SummaryPrompt`; ties `summary` to the messages that it replaces.
        idle_seconds: How long the conversation rested before this call.
        prepare: Keep the outcome in the archive instead of returning it; see `Prepared`.
        apply: A `prepared_id`: replace the messages that it was prepared for, and nothing else.
    """

    mode: Mode = "auto"
    format: str | None = None
    session_id: str | None = None
    parent_session_id: str | None = None
    model: str | None = None
    context_window: int | None = None
    max_output_tokens: int | None = None
    target_tokens: int | None = None
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


def check_session_id(session_id: str) -> str:
    """Return `session_id` if pointers can contain it.

    Raises:
        SettingsError: It is not a name that pointers can carry.
    """
    if _SESSION_ID.fullmatch(session_id) is None:
        raise SettingsError(
            f"{session_id[:140]!r} cannot name a session. Use 1 to 128 letters, digits and _ . : -"
        )
    return session_id

"""The request of a compaction: window, policy, mode and options, and the constants of a policy.

Each compaction can change the constants in `Settings` by name. The constants in `FixedSettings`
define a policy, so only the policy sets them. `microcompact`, `snip` and `collapse` are layers, in
the modules with these names.

The defaults fit a window of 200K tokens that may fill up. For a smaller budget the thresholds in
tokens and characters shrink in proportion (`scaled`). Policies from a paper disable this with
`scale_to_budget=False`.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias, get_args

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
SmallWindowRule: TypeAlias = Literal["shares", "formula"]
ThinkingRule: TypeAlias = Literal["auto", "enabled", "strip", "keep", "error"]
ToolKind: TypeAlias = Literal[
    "read", "write", "edit", "search", "list", "execute", "notebook", "web", "other"
]
EstimatorName: TypeAlias = Literal["auto", "chars/4", "chars/3"]
KeepBase: TypeAlias = Literal["target", "window"]
SplitTurnRule: TypeAlias = Literal["checkpoint", "summary"]
TooLongRule: TypeAlias = Literal["clip", "drop_oldest"]
SummaryOutline: TypeAlias = Literal["summary", "nine_sections"]
# The default thresholds belong to this trigger and target (0.6 of it): a window of 200,000 tokens
# minus 16,384 for the response of an unknown model and a buffer of 13,000.
REFERENCE_TRIGGER_TOKENS = 170_616
REFERENCE_TARGET_TOKENS = int(REFERENCE_TRIGGER_TOKENS * 0.6)


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


@dataclass(frozen=True, slots=True)
class FixedSettings:
    """The constants that define a policy. A compaction cannot change them.

    Attributes:
        small_window: Output reserve and buffer in a window below 65,536 tokens, unless the caller
            names them. "shares" limits them to 30 % and 20 % of the window. "formula" does so only
            if less than a quarter of the window would remain.
        compactable_kinds: Kinds of tools whose results `microcompact` clears; empty for all kinds.
        cleared_text: Text before the pointer of a cleared result. {tool} is the tool's name.
        min_result_chars: `microcompact` keeps results of at most this many characters, also if they
            exceed `min_result_tokens`.
        collapses_turns: Whether `collapse` also replaces finished turns, not only items of a plan.
        list_changed_files: Whether every call lists files that changed on disk since the
            conversation read them. Each change is listed once, after the last message.
        list_open_todos: Whether open items of the agent's todo list are listed at each request of
            the user, and after a compaction.
        replace_all: Whether a summary replaces all messages except an unanswered request.
        acknowledge: Whether an assistant message confirms the summary, if a turn of the user
            follows or the list ended with the assistant.
        keep_recent_of: What `keep_recent_fraction` is a fraction of.
        split_turn: How a cut inside the running turn treats its request. "checkpoint" keeps the
            request in full. "summary" summarizes it with everything before the cut.
        reactive_keep_messages: Number of newest messages that the first compaction after a
            rejection keeps; 0 lets the budget decide.
        reactive_retries: How many times a rejected list is compacted, harder each time. Then the
            reply warns that another attempt is useless. 0 sets no limit: attempts continue while
            the list shrinks.
        summary_outline: Headings for a summary by a model: "summary", or Claude Code's
            "nine_sections", which follow an analysis that is discarded.
        summary_too_long: What happens to a transcript that is too long for the summarizing model.
            "clip" passes the work log, facts and shortened texts. "drop_oldest" drops the oldest
            groups of messages.
        summary_retries: How many shorter prompts the summarizing model gets after it rejected one
            as too long.
    """

    small_window: SmallWindowRule = "shares"
    compactable_kinds: tuple[ToolKind, ...] = ()
    cleared_text: str = ""
    min_result_chars: int = 0
    collapses_turns: bool = False
    list_changed_files: bool = False
    list_open_todos: bool = False
    replace_all: bool = False
    acknowledge: bool = False
    keep_recent_of: KeepBase = "target"
    split_turn: SplitTurnRule = "checkpoint"
    reactive_keep_messages: int = 0
    reactive_retries: int = 0
    summary_outline: SummaryOutline = "summary"
    summary_too_long: TooLongRule = "clip"
    summary_retries: int = 5


@dataclass(frozen=True, slots=True)
class Settings(FixedSettings):
    """The constants of a policy that a compaction can change by name.

    Attributes:
        estimator: How tokens are counted. "auto" uses the model's tokenizer. "chars/4" is the
            papers' estimate and "chars/3" Claude Code's; both are far too low for Claude.
        trigger_tokens: Upper limit of the trigger in tokens; 0 sets no limit.
        trigger_fraction: Upper limit of the trigger as a fraction of the window.
        conversation_fraction: Upper limit of the conversation (without system prompt and tools) as
            a fraction of the window. It saves cost, because each request sends all of it again.
        target_fraction: Limit for the compacted conversation, as a fraction of the trigger. The
            tokens of system prompt and tools are first subtracted from the trigger.
        output_reserve_cap_tokens: Upper limit of the tokens reserved for the model's response.
        buffer_tokens: Safety margin below the window, for tokens that cannot be counted.
        max_request_bytes: The provider's size limit of a request, in bytes.
        persist_result_tokens: A single tool result above this size is archived at once.
        persist_newest_chars: Character limit for all new results together. Results are new if
            the model has not answered since.
        preview_chars: Length of the preview of an archived result.
        snip_max_messages: Number of messages that `snip` keeps, including the first three.
        clear_every_turn: Whether the layers that clear results also run below the trigger, and
            clear all results that they may.
        keep_recent_results: Number of newest results that `microcompact` keeps.
        min_result_tokens: `microcompact` keeps results of at most this many tokens.
        min_savings_tokens: `microcompact` clears nothing if it would save fewer tokens.
        clip_argument_chars: Longer string arguments of old calls are shortened.
        idle_clear_seconds: After this pause the prompt cache is assumed cold, so results are
            cleared without a minimum saving.
        protected_tools: Names of tools whose results are never cleared; upper and lower case are
            equal.
        tool_kinds: Kinds of unknown tools, by name.
        keep_recent_fraction: Fraction of the target that recent messages may keep at a cut.
        keep_recent_turns: Number of last turns that are kept whole if they fit.
        summary_tokens: Token limit of a summary.
        pinned_tokens: Token limit of all pinned texts together.
        automatic_pin_tokens: Token limit of the user's rules that are pinned automatically, newest
            first; part of `pinned_tokens`. 0 pins none.
        restore_files: Number of recently used files that are restored after a cut.
        restore_file_tokens: Token limit of one restored file. A larger file is only named.
        restore_total_tokens: Token limit of all restored files together.
        thinking: What happens to thinking blocks that an earlier edit makes invalid: "strip",
            "keep" or "error". "enabled" strips all except those of a running tool loop, which
            requests with that type of thinking need. "auto" is "enabled" for Claude up to 4.6,
            otherwise "strip".
        scale_to_budget: Whether thresholds shrink with a smaller budget.
    """

    estimator: EstimatorName = "auto"
    trigger_tokens: int = 0
    trigger_fraction: float = 1.0
    conversation_fraction: float = 1.0
    target_fraction: float = 0.6
    output_reserve_cap_tokens: int = 20_000
    buffer_tokens: int = 13_000
    max_request_bytes: int = 32_000_000
    persist_result_tokens: int = 40_000
    persist_newest_chars: int = 200_000
    preview_chars: int = 2_000
    snip_max_messages: int = 50
    clear_every_turn: bool = False
    keep_recent_results: int = 3
    min_result_tokens: int = 1_000
    min_savings_tokens: int = 20_000
    clip_argument_chars: int = 2_000
    idle_clear_seconds: int = 3_600
    protected_tools: tuple[str, ...] = ()
    tool_kinds: Mapping[str, ToolKind] = field(default_factory=dict[str, ToolKind])
    keep_recent_fraction: float = 0.5
    keep_recent_turns: int = 6
    summary_tokens: int = 5_000
    pinned_tokens: int = 4_000
    automatic_pin_tokens: int = 600
    restore_files: int = 5
    restore_file_tokens: int = 5_000
    restore_total_tokens: int = 50_000
    thinking: ThinkingRule = "auto"
    scale_to_budget: bool = True

    def scaled(self, target_tokens: int, trigger_tokens: int = 0) -> "Settings":
        """Return the settings for a smaller budget, with smaller thresholds of the layers.

        The size limits of results, arguments and restored files shrink in proportion to the target,
        but not below a minimum. No threshold grows. Limits of new results shrink less, with the
        trigger, because the context may fill up to the trigger until the model has seen them.
        """
        if not self.scale_to_budget:
            return self
        share = max(target_tokens, 1) / REFERENCE_TARGET_TOKENS
        new_result_share = max(share, trigger_tokens / REFERENCE_TRIGGER_TOKENS)

        def shrink(value: int, minimum: int, share: float = share) -> int:
            return min(value, max(minimum, int(value * share)))

        return replace(
            self,
            persist_result_tokens=shrink(self.persist_result_tokens, 400, new_result_share),
            persist_newest_chars=shrink(self.persist_newest_chars, 2_000, new_result_share),
            preview_chars=shrink(self.preview_chars, 400, new_result_share),
            min_result_tokens=shrink(self.min_result_tokens, 50),
            min_savings_tokens=shrink(self.min_savings_tokens, 100),
            clip_argument_chars=shrink(self.clip_argument_chars, 200),
            # The user's rules stay whole as long as they take at most a sixth of the target.
            automatic_pin_tokens=min(self.automatic_pin_tokens, target_tokens // 6),
            restore_file_tokens=shrink(self.restore_file_tokens, 200),
            restore_total_tokens=shrink(self.restore_total_tokens, 0),
        )


_FIXED_NAMES = frozenset(item.name for item in fields(FixedSettings))
SETTING_NAMES = tuple(item.name for item in fields(Settings) if item.name not in _FIXED_NAMES)


def override(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Return `settings` with constants changed by name.

    Raises:
        SettingsError: A name is unknown (the error suggests similar names) or fixed by the policy,
            or a value has a wrong type or is out of range.
    """
    return replace(settings, **{name: _checked(name, value) for name, value in changes.items()})


def _checked(name: str, value: Any) -> Any:
    if name not in SETTING_NAMES:
        if name in _FIXED_NAMES:
            raise SettingsError(f"The policy fixes the setting {name!r}. Choose another policy.")
        similar = difflib.get_close_matches(name, SETTING_NAMES, n=3)
        label = "Similar" if similar else "Known"
        names = ", ".join(similar or SETTING_NAMES)
        raise SettingsError(f"Unknown setting {name!r}. {label} settings: {names}.")
    default = getattr(Settings(), name)
    is_valid, expected = _check(name, value, default)
    if not is_valid:
        raise SettingsError(f"{name} is {value!r}. Pass {expected}.")
    # JSON has lists in place of tuples, and 1 in place of 1.0.
    return type(default)(value)


def _check(name: str, value: Any, default: Any) -> tuple[bool, str]:
    """Return whether `value` is valid, and a description of valid values."""
    # Python's bool is an int, but a flag in place of a number is a mistake.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match default:
        case bool():
            return isinstance(value, bool), "true or false"
        case int():
            is_count = is_number and isinstance(value, int) and value >= 0
            return is_count, "a whole number of at least 0"
        case float():
            return is_number and 0 < value <= 1, "a number above 0 and at most 1"
        case str():
            choices = get_args({"thinking": ThinkingRule, "estimator": EstimatorName}[name])
            return value in choices, f"one of: {', '.join(choices)}"
        case tuple():
            is_names = isinstance(value, list | tuple) and all(isinstance(v, str) for v in value)  # pyright: ignore[reportUnknownVariableType]
            return is_names, "a list of names"
        case _:
            kinds = get_args(ToolKind)
            is_kinds = isinstance(value, Mapping) and all(kind in kinds for kind in value.values())  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            return is_kinds, f"an object of tool name to kind (one of: {', '.join(kinds)})"

"""The constants of a policy: `Settings` can be changed by a caller, `Strategy` by no one.

The figures are those of a 200K window that is used to the full. For a smaller budget the token and
character thresholds shrink in proportion (`scaled`), so that a 32K window is worked with the same
strategy; a policy that quotes a paper switches that off with `scale_to_budget=False`.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias, cast, get_args

from context_compaction.errors import SettingsError

# What a small window does to reserve and buffer: they have at most their shares of it; or they are
# what the formula says, as long as that leaves a quarter of the window.
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


# The target that the unscaled thresholds belong to (0.6 of a 200K window's room), and that room.
REFERENCE_TARGET_TOKENS = 102_369
REFERENCE_TRIGGER_TOKENS = 170_616


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a policy works. A policy decides these values, and a caller cannot change them.

    Attributes:
        small_window: In a window below 65 536 tokens, reserve and buffer that nobody named have
            their "shares" of it, at most 30 % and 20 %; or follow the "formula" as long as
            that leaves a quarter of the window.
        compactable_kinds: Kinds of tools whose results `microcompact` clears; empty means all.
        cleared_text: What precedes the pointer of a cleared result; {tool} is its name.
        min_result_chars: `microcompact` leaves every result of at most so many characters.
        collapses_turns: Whether `collapse` takes finished turns, besides items of a plan.
        tell_changed_files: On every call, name at the end of the list the files that changed on
            disk since the conversation read them, each change once.
        tell_open_todos: At each request of the user, and after a compaction, name the items of the
            agent's todo list that are open.
        replace_all: At a cut everything is replaced but an unanswered request.
        acknowledge: After a summary, add an assistant message that confirms it, where a turn of
            the user follows, or the list ended with the assistant.
        keep_recent_of: What `keep_recent_fraction` is a part of.
        split_turn: A cut inside the running turn leaves its request in full before a "checkpoint",
            or folds it into the "summary" with the rest of what was before the cut.
        reactive_keep_messages: After a refusal keep this many newest messages first; 0 leaves it
            to the budget.
        reactive_retries: A request that was refused is compacted so many times, each time harder;
            then the answer warns that another is of no use. 0 is as long as it gets smaller.
        summary_outline: The headings that a model writes under: our "summary", or Claude Code's
            "nine_sections" after an analysis that is thrown away.
        summary_too_long: Of a record that is too long for the model that summarises it, "clip"
            shows log, facts and clipped texts, "drop_oldest" leaves out its oldest groups of
            messages ...
        summary_retries: ... and a model that reports "too long" is called so many times more.
        summary_fraction: The part of the target that a cut keeps free for the summary at least.
        restore_kinds: Kinds of tools whose files count as used.
    """

    small_window: SmallWindowRule = "shares"
    compactable_kinds: tuple[ToolKind, ...] = ()
    cleared_text: str = ""
    min_result_chars: int = 0
    collapses_turns: bool = False
    tell_changed_files: bool = False
    tell_open_todos: bool = False
    replace_all: bool = False
    acknowledge: bool = False
    keep_recent_of: KeepBase = "target"
    split_turn: SplitTurnRule = "checkpoint"
    reactive_keep_messages: int = 0
    reactive_retries: int = 0
    summary_outline: SummaryOutline = "summary"
    summary_too_long: TooLongRule = "clip"
    summary_retries: int = 5
    summary_fraction: float = 0.5
    restore_kinds: tuple[ToolKind, ...] = ("read", "write", "edit")


@dataclass(frozen=True, slots=True)
class Settings(Strategy):
    """The constants that a caller may change by name.

    Attributes:
        estimator: How tokens are counted: "auto" by the model's tokenizer; "chars/4" as the papers
            do, and "chars/3" as Claude Code does (that, times 4/3), both far too low for Claude.
        trigger_tokens: Act above this at the latest; 0 leaves it to the window.
        trigger_fraction: Act above this part of the window at the latest.
        conversation_fraction: Act at the latest when the conversation, system prompt and tools
            apart, has this part of the window: what is sent again on every call costs.
        target_fraction: Part of the trigger that a compaction brings the conversation down to,
            system prompt and tools apart, so that trigger and target lie apart.
        output_reserve_cap_tokens: At most this much is reserved for the model's answer.
        buffer_tokens: Safety margin below the window, for what we cannot see.
        max_request_bytes: The provider's limit on a request's size.
        persist_result_tokens: A single tool result above this goes to the archive at once.
        persist_newest_chars: All results of the newest message together may have this many.
        preview_chars: How many characters of a persisted result stay in the context.
        snip_max_messages: `snip` keeps this many messages, the first three among them.
        clear_every_turn: Run the clearing layers below the trigger too, and clear all that may be.
        keep_recent_results: `microcompact` leaves this many newest results alone ...
        min_result_tokens: ... and every result of at most so many tokens ...
        min_savings_tokens: ... and does nothing unless it saves this much.
        clip_argument_chars: Longer string arguments of old calls are clipped to a head.
        idle_clear_seconds: After such a pause the prompt cache is cold: clear without minimum.
        protected_tools: Tools whose results are never cleared, by name (case does not matter).
        tool_kinds: Kinds of tools that the recogniser does not know, by name.
        keep_recent_fraction: Part of the target that recent messages may keep at a cut.
        keep_recent_turns: The last turns stay whole where they fit.
        summary_tokens: Upper bound of a summary.
        pinned_tokens: Pinned texts together may have this much ...
        automatic_pin_tokens: ... of which rules of the user that are pinned unasked at most this
            much, the newest ones; 0 pins none.
        restore_files: Number of recently used files that are restored after a cut; 0 restores none.
        restore_file_tokens: Tokens of one restored file. Of a larger file the lines around its
            last edit are restored.
        restore_total_tokens: Tokens of all restored files together.
        thinking: What to do with thinking blocks that an earlier edit makes void: "strip", "keep"
            or "error". "enabled" strips all but those of a running tool loop, as requests with
            thinking of that type need it; "auto" is "enabled" for Claude up to 4.6, else "strip".
        scale_to_budget: Whether the thresholds shrink with a smaller budget.
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
        """The same strategy for a smaller budget: thresholds shrink in proportion, never grow.

        The thresholds of a new result shrink with the trigger, which the context may grow to: the
        model has just asked for it. All others shrink with the target, which is to be left.
        """
        if not self.scale_to_budget:
            return self
        share = max(target_tokens, 1) / REFERENCE_TARGET_TOKENS
        new_share = max(share, trigger_tokens / REFERENCE_TRIGGER_TOKENS)

        def shrink(value: int, floor: int, share: float = share) -> int:
            return min(value, max(floor, int(value * share)))

        return replace(
            self,
            persist_result_tokens=shrink(self.persist_result_tokens, 400, new_share),
            persist_newest_chars=shrink(self.persist_newest_chars, 2_000, new_share),
            preview_chars=shrink(self.preview_chars, 400, new_share),
            min_result_tokens=shrink(self.min_result_tokens, 50),
            min_savings_tokens=shrink(self.min_savings_tokens, 100),
            clip_argument_chars=shrink(self.clip_argument_chars, 200),
            automatic_pin_tokens=min(self.automatic_pin_tokens, target_tokens // 6),
            restore_file_tokens=shrink(self.restore_file_tokens, 200),
            restore_total_tokens=shrink(self.restore_total_tokens, 0),
        )


STRATEGY_NAMES = tuple(item.name for item in fields(Strategy))
SETTING_NAMES = tuple(item.name for item in fields(Settings) if item.name not in STRATEGY_NAMES)
_CHOICES = {"thinking": get_args(ThinkingRule), "estimator": get_args(EstimatorName)}


def override(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """`settings` with some constants changed by name, each checked for type and range.

    Raises:
        SettingsError: An unknown name (the nearest known ones are offered), or a bad value.
    """
    checked = {name: _checked(name, value, settings) for name, value in changes.items()}
    return replace(settings, **checked)


def _checked(name: str, value: Any, settings: Settings) -> Any:
    if name not in SETTING_NAMES:
        near = difflib.get_close_matches(name, SETTING_NAMES, n=3) or SETTING_NAMES
        raise SettingsError(f"There is no setting {name!r}. Did you mean: {', '.join(near)}?")
    default = getattr(settings, name)
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            known = ", ".join(_CHOICES[name])
            raise SettingsError(f"{name} must be one of {known}, not {value!r}.")
        return value
    if isinstance(default, bool):
        return _of_type(name, value, bool, "true or false")
    if isinstance(default, int):
        number = _of_type(name, value, int, "a whole number")
        if number < 0:
            raise SettingsError(f"{name} must not be negative, but is {number}.")
        return number
    if isinstance(default, float):
        share = _of_type(name, value, (int, float), "a number between 0 and 1")
        if not 0 < share <= 1:
            raise SettingsError(f"{name} must lie between 0 and 1, but is {share}.")
        return float(share)
    return _tool_kinds(name, value) if name == "tool_kinds" else _names(name, value)


def _of_type(name: str, value: Any, wanted: Any, description: str) -> Any:
    # bool is an int in Python; a flag given where a number belongs is a mistake.
    if not isinstance(value, wanted) or (wanted is not bool and isinstance(value, bool)):
        raise SettingsError(f"{name} must be {description}, not {value!r}.")
    return value


def _names(name: str, value: Any) -> tuple[str, ...]:
    items = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else None
    if items is None or not all(isinstance(item, str) for item in items):
        raise SettingsError(f"{name} must be a list of names, not {value!r}.")
    return tuple(items)


def _tool_kinds(name: str, value: Any) -> dict[str, ToolKind]:
    if not isinstance(value, Mapping):
        raise SettingsError(f"{name} must be an object of name to kind, not {value!r}.")
    kinds = dict(cast("Mapping[str, Any]", value))
    known = get_args(ToolKind)
    for tool, kind in kinds.items():
        if kind not in known:
            raise SettingsError(
                f"{name} gives {tool!r} the kind {kind!r}. Choose one of: {', '.join(known)}."
            )
    return kinds

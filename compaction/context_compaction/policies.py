"""Policies: named sets of layers and constants. A new strategy is a new layer and an entry here.

Four policies are published designs with their papers' constants: S0 "v5 context compression", S2
"s06 compact", S3 "s08 context compact" with the production constants of Claude Code, and S4
"timeline compaction v2". If a rule of a paper would break a promise of this library, the promise
wins, and the policy lists the case in `differences`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from context_compaction.errors import SettingsError
from context_compaction.layers import LAYERS
from context_compaction.layers.base import Layer, Stage
from context_compaction.request import Settings


@dataclass(frozen=True, slots=True)
class Policy:
    """A strategy, as data.

    Attributes:
        name: The value of `policy=`.
        description: What the policy does, in one or two sentences.
        layers: Names of its layers, in order.
        settings: Its constants.
        source: Source of its rules and constants.
        differences: Cases in which it differs from its source, with the reason.
    """

    name: str
    description: str
    layers: tuple[str, ...]
    settings: Settings = field(default_factory=Settings)
    source: str = "this project"
    differences: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise `SettingsError` for an unknown layer, because it would never run."""
        unknown = [name for name in self.layers if name not in LAYERS]
        if unknown:
            raise SettingsError(
                f"Policy {self.name!r} uses unknown layer {unknown[0]!r}. "
                f"Available layers: {', '.join(LAYERS)}."
            )

    def at_stage(self, stage: Stage) -> list[tuple[str, Layer]]:
        """Return the names and layers of `stage`, in the policy's order."""
        layers = ((name, LAYERS[name]) for name in self.layers)
        return [(name, layer) for name, layer in layers if layer.stage == stage]

    @property
    def replaces_history(self) -> bool:
        """Whether a layer replaces messages by a summary."""
        return bool(self.at_stage("replace"))

    @property
    def restores_files(self) -> bool:
        """Whether a layer restores files after history was replaced."""
        return bool(self.at_stage("restore"))


_OUR_LAYERS = ("persist", "dedupe", "microcompact", "collapse", "summarize", "restore")

# Larger than any text, so it disables a threshold.
_NEVER = 1_000_000_000

_PROMISES_WIN = (
    "Every placeholder and summary contains a pointer to the original.",
    "Results that are lists of parts are treated like strings; the papers skip them.",
    "A result stays if its placeholder would not be smaller.",
    "Results of tools that ask the user, keep the plan or load a skill are not cleared.",
    "The system prompt and tools count, and tokens are upper estimates for the model. "
    "estimator='chars/4' or 'chars/3' counts like the papers.",
    "If the policy's own steps do not meet the target, harder steps follow until they do.",
)
_REPLACES_ALL = (
    "An unanswered request stays after the summary. The acknowledgement is omitted if no message "
    "follows, because providers refuse or continue a list that ends with the assistant.",
    "A call without a result stays.",
)
_SMALL_WINDOW = (
    "If the formula leaves less than a quarter of a window below 65 536 tokens (2 616 of 32 000 "
    "with 16 384 of output; nothing of 16 000), output reserve and buffer get at most 30 % and "
    "20 % of the window. Values that the caller names are never reduced."
)
_REACTIVE = (
    "At the retry limit the reply is no_progress with the caller's list and its largest pieces; "
    "the paper raises an exception.",
    "After three refused requests for a summary, the summary consists of verbatim extracts.",
)
_EVERY_TURN = (
    "Clearing on every turn is kept, although it breaks the prompt cache on every turn. "
    "clear_every_turn=false waits for the trigger.",
)

# No paper scales its constants, has a target below its trigger, or pins rules automatically.
_PAPER = Settings(target_fraction=1.0, automatic_pin_tokens=0, scale_to_budget=False)
_TIMELINE = replace(
    _PAPER,
    trigger_fraction=0.9,
    buffer_tokens=0,
    keep_recent_fraction=0.7,
    keep_recent_of="window",
    keep_recent_turns=6,
    split_turn="summary",
)

POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy(
            "default",
            "Acts when the window is nearly full: a window of 200K at about 170K, and leaves about "
            "51K. Below that only a large newest result is persisted. At the trigger it clears "
            "superseded results, then old results. If that is not enough, finished sub-tasks "
            "become a line each, or history is summarized at a safe cut.",
            _OUR_LAYERS,
            # Chosen between 0.3 and 0.5 (benchmarks/results/default_constants.md).
            Settings(target_fraction=0.3),
        ),
        Policy(
            "economy",
            "Like default, for users who value cost over recall: a window of 200K acts at 84K, "
            "0.42 of it, and leaves about 13K.",
            _OUR_LAYERS,
            # Each request pays for the whole context. This is the highest measured trigger that is
            # a quarter cheaper than each paper's policy, or as cheap with higher recall, in nearly
            # all comparisons (benchmarks/results/default_constants.md).
            Settings(conversation_fraction=0.42, target_fraction=0.15),
        ),
        Policy(
            "gentle",
            "Persists large results, and clears superseded and old results. History is never "
            "replaced by a summary, so it can end above the target and then reports that.",
            ("persist", "dedupe", "microcompact"),
        ),
        Policy(
            "claude-code",
            "Clears old results of eight tools as soon as that saves 20 000 tokens. At window - "
            "min(output, 20 000) - 13 000, finished turns become a line each if that is enough and "
            "saves as much. Otherwise a summary replaces everything, and up to five files that "
            "were read are restored.",
            ("unchanged", "persist", "snip", "microcompact", "collapse", "summarize", "restore"),
            replace(
                _PAPER,
                # S0: demotion above 40 000 tokens. S3: 200 000 characters in the newest message.
                persist_result_tokens=40_000,
                persist_newest_chars=200_000,
                preview_chars=2_000,
                snip_max_messages=_NEVER,  # S0's rule is not published; S3's is in four-layer
                collapses_turns=True,
                # S0: on every turn; eight tools; keep 3; each over 1 000; together 20 000.
                clear_every_turn=True,
                compactable_kinds=(
                    "read",
                    "write",
                    "edit",
                    "search",
                    "list",
                    "execute",
                    "notebook",
                ),
                cleared_text="[Old tool result content cleared]",
                keep_recent_results=3,
                min_result_tokens=1_000,
                min_savings_tokens=20_000,
                clip_argument_chars=_NEVER,
                idle_clear_seconds=3_600,  # S3: 60 minutes
                list_changed_files=True,  # S0: noticed at the start of each turn
                list_open_todos=True,  # S0: todo reminders before each turn
                replace_all=True,
                acknowledge=True,
                reactive_retries=1,  # S3: the retry limit
                summary_outline="nine_sections",  # S3: nine sections, analysis and summary
                summary_too_long="drop_oldest",  # S3: truncateHeadForPTLRetry
                summary_retries=2,
                summary_tokens=2_000,  # S0: max_tokens of the summary's call
                # S0: from reads, newest first, unique paths, 5 files, 5 000 each, 50 000 in all.
                restore_files=5,
                restore_file_tokens=5_000,
                restore_total_tokens=50_000,
                small_window="formula",
            ),
            "S0, and the production constants in S3",
            (
                *_PROMISES_WIN,
                *_REPLACES_ALL,
                *_REACTIVE,
                _SMALL_WINDOW,
                "Rules for snip and collapse are not published. Here the caller names the messages "
                "to snip, and all finished turns except the newest are collapsed together.",
                "Changed files inside a root are compared by content instead of mtime, and are "
                "listed without their differences. The only other attachment is open todos.",
                "The eight tools are seven kinds here, because glob and list_dir are one kind.",
                "Restored files are in one message, without an acknowledgement for each. A file "
                "above 5 000 tokens is named by its path instead of being cut.",
            ),
        ),
        Policy(
            "three-layer",
            "On every turn all results except the newest three become one line each. Above 50 000 "
            "tokens a summary with an acknowledgement replaces everything.",
            ("microcompact", "summarize"),
            replace(
                _PAPER,
                trigger_tokens=50_000,  # S2: THRESHOLD
                clear_every_turn=True,
                cleared_text="[Previous: used {tool}]",
                keep_recent_results=3,  # S2: KEEP_RECENT
                min_result_tokens=0,
                min_result_chars=100,
                min_savings_tokens=0,
                clip_argument_chars=_NEVER,
                replace_all=True,
                acknowledge=True,
                summary_tokens=2_000,  # S2: max_tokens of the summary's call
            ),
            "S2",
            (
                *_PROMISES_WIN,
                *_REPLACES_ALL,
                "A window whose budget is below 50 000 tokens acts at its budget.",
                *_EVERY_TURN,
            ),
        ),
        Policy(
            "four-layer",
            "On every turn large newest results are persisted, the middle of more than 50 "
            "messages is removed, and all results except the newest three become one line each. "
            "At the trigger a summary replaces everything. After a refusal the newest 5 stay.",
            ("persist", "snip", "microcompact", "summarize"),
            replace(
                _PAPER,
                persist_result_tokens=_NEVER,
                persist_newest_chars=200_000,  # S3: tool_result_budget
                preview_chars=2_000,
                snip_max_messages=50,  # S3: head 3, tail 47
                clear_every_turn=True,
                cleared_text="[Earlier tool result compacted. Re-run if needed.]",
                keep_recent_results=3,
                min_result_tokens=0,
                min_result_chars=120,
                min_savings_tokens=0,
                clip_argument_chars=_NEVER,
                replace_all=True,
                summary_tokens=2_000,
                reactive_keep_messages=5,  # S3: reactive_compact
                reactive_retries=1,
                summary_too_long="drop_oldest",
                summary_retries=2,
                small_window="formula",
            ),
            "S3",
            (
                *_PROMISES_WIN,
                *_REPLACES_ALL,
                *_REACTIVE,
                _SMALL_WINDOW,
                *_EVERY_TURN,
                "The snip keeps the newest plan and loaded skills.",
            ),
        ),
        Policy(
            "timeline",
            "Above 0.9 of the window, history is summarized at a cut that keeps 70 % of the "
            "window, or the last 6 turns if they fit. The start of a split turn is summarized "
            "under its own heading.",
            ("summarize",),
            _TIMELINE,
            "S4",
            (
                *_PROMISES_WIN,
                "The reserve for the answer, at most 30 % of a window below 65 536, stays free "
                "even if that is more than a tenth of the window.",
                "The last 6 turns stay only if they fit; the paper keeps them in any case.",
                "An earlier summary is not kept as a hidden message, but written again from the "
                "originals.",
            ),
        ),
        Policy(
            "timeline-checkpoint",
            "Like timeline, but the running turn is never summarized. A checkpoint with a ledger "
            "of its calls replaces its start, and the user's request stays in full.",
            ("summarize",),
            replace(_TIMELINE, split_turn="checkpoint"),
            "the successor of S4",
            _PROMISES_WIN,
        ),
    )
}


def policy_named(name: str) -> Policy:
    """Return the policy `name`.

    Raises:
        SettingsError: The policy is unknown; the message lists the known names.
    """
    if name not in POLICIES:
        known = ", ".join(POLICIES)
        raise SettingsError(f"Unknown policy {name!r}. Choose one of: {known}.")
    return POLICIES[name]

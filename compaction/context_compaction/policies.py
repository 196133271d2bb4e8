"""Policies: named sets of layers and constants. A new strategy is a new layer and a line here.

Four of them are published designs, each with its paper's constants: S0 "v5 context compression",
S2 "s06 compact", S3 "s08 context compact" with the production constants of Claude Code, and S4
"timeline compaction v2". Where a paper's rule would break a promise of ours, the promise wins, and
the policy's `differences` name it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from context_compaction.errors import SettingsError
from context_compaction.layers import LAYERS
from context_compaction.layers.base import Layer, Stage
from context_compaction.settings import Settings


@dataclass(frozen=True, slots=True)
class Policy:
    """A strategy, as data.

    Attributes:
        name: The value of `policy=`.
        description: What it does, in a sentence or two.
        layers: Names of the layers that it runs, in order.
        settings: Its constants.
        source: Where its rules and constants are from.
        differences: Where it does not do what its source does, and why.
    """

    name: str
    description: str
    layers: tuple[str, ...]
    settings: Settings = field(default_factory=Settings)
    source: str = "our own"
    differences: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise for the name of an unknown layer, which would never run."""
        unknown = [name for name in self.layers if name not in LAYERS]
        if unknown:
            raise SettingsError(
                f"Policy {self.name!r} names the layer {unknown[0]!r}, which there is none of. "
                f"Choose from: {', '.join(LAYERS)}."
            )

    def at_stage(self, stage: Stage) -> list[tuple[str, Layer]]:
        """Its layers of `stage` by name, in its order."""
        named = ((name, LAYERS[name]) for name in self.layers)
        return [(name, layer) for name, layer in named if layer.stage == stage]

    @property
    def replaces_history(self) -> bool:
        """Whether any of its layers replaces messages by a summary."""
        return any(LAYERS[name].replaces_history for name in self.layers)

    @property
    def restores_files(self) -> bool:
        """Whether any of its layers puts files back after history was replaced."""
        return bool(self.at_stage("restore"))


_OUR_LAYERS = ("persist", "waits", "dedupe", "microcompact", "collapse", "summarize", "restore")

# More than any text has: switches a threshold off.
_NEVER = 1_000_000_000

_PROMISES_WIN = (
    "Every placeholder and summary carries a pointer to the original, in the place of a bare text.",
    "Results that are lists of parts are treated like strings; the papers pass over them.",
    "A result stays where its placeholder would not be smaller.",
    "What asks the user, keeps the plan or loads a skill is not cleared.",
    "The system prompt and the tools count, and counts are the model's, by their upper estimate. "
    "estimator='chars/4' or 'chars/3' counts as the papers do.",
    "Where the policy's own steps do not fit the target, harder ones follow until they do.",
)
_REPLACES_ALL = (
    "A request that nobody has answered stays behind the summary, and the acknowledgement is left "
    "out where nothing follows it: a list that ends with the assistant's words is refused, or "
    "goes on in them.",
    "A call whose result is still to come stays.",
)
_SMALL_WINDOW = (
    "Where the formula leaves less than a quarter of a window below 65 536 tokens (2 616 of 32 000 "
    "with 16 384 of output; nothing of 16 000), the output's reserve and the buffer have at most "
    "30 % and 20 % of it. What a caller names for them is never cut."
)
_REACTIVE = (
    "Where the retry limit is reached the answer is no_progress, with the list as it came and what "
    "is left of it; the paper raises an exception.",
    "Where three requests for a summary were refused as too long, verbatim extracts stand in it.",
)
_EVERY_TURN = (
    "Kept, at a cost: a clearing on every turn breaks the prompt cache on every turn, which ours "
    "avoids. clear_every_turn=false waits for the trigger.",
)

# No paper shrinks its constants, leaves less than its threshold, or pins what it was not asked to.
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
            "51K. Below that only a large newest result is persisted. At the trigger: what is "
            "worthless is cleared, then what is old; then finished sub-tasks become a line each, "
            "where that is enough; else history is summarised at a safe cut.",
            _OUR_LAYERS,
            # How much is left, between 0.3 and 0.5: benchmarks/results/default_constants.md.
            Settings(target_fraction=0.3),
        ),
        Policy(
            "economy",
            "As default, for who counts cost before recall: a window of 200K acts at 84K, 0.42 of "
            "it, and leaves about 13K.",
            _OUR_LAYERS,
            # Each call pays for all that is carried. This is the highest trigger measured at which
            # it is a quarter cheaper than each paper's policy, or as cheap with higher recall, in
            # nearly all comparisons (benchmarks/results/default_constants.md).
            Settings(conversation_fraction=0.42, target_fraction=0.15),
        ),
        Policy(
            "gentle",
            "Persists large results and clears what is worthless or old. No summary: history is "
            "never replaced, so it can end above the target and then says so.",
            ("persist", "waits", "dedupe", "microcompact"),
        ),
        Policy(
            "claude-code",
            "Old results of eight kinds of tools are cleared as soon as that saves 20 000 tokens; "
            "at window - min(output, 20 000) - 13 000 finished turns become a line each, where "
            "that is enough and saves as much; else a summary replaces everything, and up to five "
            "files that were read come back.",
            (
                "unchanged",
                "persist",
                "snip",
                "microcompact",
                "collapse",
                "summarize",
                "restore",
            ),
            replace(
                _PAPER,
                # S0: demotion above 40 000 tokens. S3: 200 000 characters in the newest message.
                persist_result_tokens=40_000,
                persist_newest_chars=200_000,
                preview_chars=2_000,
                snip_max_messages=_NEVER,  # its own rule is not published; S3's is four-layer's
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
                tell_changed_files=True,  # S0: noticed at the start of each turn
                tell_open_todos=True,  # S0: todo reminders before each turn
                replace_all=True,
                acknowledge=True,
                reactive_retries=1,  # S3: the retry limit
                summary_outline="nine_sections",  # S3: nine sections, analysis and summary
                summary_too_long="drop_oldest",  # S3: truncateHeadForPTLRetry
                summary_retries=2,
                summary_tokens=2_000,  # S0: max_tokens of the summary's call
                # S0: from reads, newest first, unique paths, 5 files, 5 000 each, 50 000 in all.
                restore_kinds=("read",),
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
                "Rules for snip and collapse are not published: here the model names what is "
                "snipped, and all finished turns but the newest are collapsed at once.",
                "Files that changed are compared by content where they lie inside a root, not by "
                "mtime, and told of without their differences; of other attachments only open "
                "todos are made.",
                "The eight tools are seven kinds here, since glob and list_dir are one.",
                "Restored files stand in one message, without an acknowledgement for each; one "
                "over 5 000 tokens comes back as its outline instead of being cut.",
            ),
        ),
        Policy(
            "three-layer",
            "On every turn each result but the newest three becomes one line; above 50 000 tokens "
            "a summary with an acknowledgement replaces everything.",
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
                "A window whose own budget is below 50 000 tokens acts at that.",
                *_EVERY_TURN,
            ),
        ),
        Policy(
            "four-layer",
            "On every turn: large newest results are persisted, the middle of more than 50 "
            "messages is left out, and each result but the newest three becomes one line. At the "
            "trigger a summary replaces everything; after a refusal the newest 5 messages stay.",
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
            (*_PROMISES_WIN, *_REPLACES_ALL, *_REACTIVE, _SMALL_WINDOW, *_EVERY_TURN),
        ),
        Policy(
            "timeline",
            "Above 0.9 of the window: history is summarised at a cut that keeps 70 % of the "
            "window, or the last 6 turns where they fit; a split turn's beginning is told under "
            "its own heading.",
            ("summarize",),
            _TIMELINE,
            "S4",
            (
                *_PROMISES_WIN,
                "The answer's reserve, at most 30 % of a window below 65 536, stays free where "
                "0.9 would not leave it.",
                "The last 6 turns stay only where they fit; the paper keeps them even then.",
                "An earlier summary is not kept hidden: it is written anew from the originals.",
            ),
        ),
        Policy(
            "timeline-checkpoint",
            "As timeline, but the running turn is never summarised: its beginning is folded behind "
            "a checkpoint with a ledger of its calls, and the user's request stays in full.",
            ("summarize",),
            replace(_TIMELINE, split_turn="checkpoint"),
            "the successor of S4",
            _PROMISES_WIN,
        ),
    )
}


def policy_named(name: str) -> Policy:
    """The policy of that name.

    Raises:
        SettingsError: No policy has that name; the message lists the names that exist.
    """
    if name not in POLICIES:
        known = ", ".join(POLICIES)
        raise SettingsError(f"There is no policy {name!r}. Choose one of: {known}.")
    return POLICIES[name]

"""Make a conversation fit its context window: nothing lost, always valid, no LLM needed.

The public names, `__all__`, are the contract; everything else may change. Each is loaded when it is
first used, so that importing the library costs next to nothing::

    async with open_archive(Path("archive")) as archive:
        result = await compact(messages, CompactRequest(context_window=200_000), archive=archive)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from context_compaction.archive import Archive, Hit, Query, SearchPage
    from context_compaction.archive.local import LocalArchive, open_archive
    from context_compaction.budget import Budget, make_budget
    from context_compaction.compaction import (
        Boundary,
        CompactionStats,
        CompactRequest,
        CompactResult,
        LayerReport,
        Piece,
        Prepared,
        SummaryPrompt,
        TokenReport,
    )
    from context_compaction.edits import Blob, Edit
    from context_compaction.errors import (
        ArchiveBusyError,
        ArchiveDamagedError,
        ArchiveError,
        ArchiveFullError,
        CompactionError,
        HookError,
        InvalidMessageError,
        NotFoundError,
        PathNotAllowedError,
        PromptTooLongError,
        QueryError,
        SettingsError,
        SummaryError,
        UnknownFormatError,
        VocabularyError,
    )
    from context_compaction.messages import Message, Messages
    from context_compaction.pipeline import compact
    from context_compaction.policies import POLICIES, Policy
    from context_compaction.roots import DiskFile, Roots, roots_of
    from context_compaction.settings import Settings
    from context_compaction.splices import Splice, apply_splices, make_splices
    from context_compaction.summarizers.anthropic import AnthropicModel
    from context_compaction.summarizers.model import (
        ModelAnswer,
        ModelPrompt,
        ModelUsage,
        SummaryModel,
    )
    from context_compaction.tokens import MessageCounter, counter_for
    from context_compaction.wire import FORMATS, detect, parse, render
    from context_compaction.wire.conversation import Conversation
    from context_compaction.wire.convert import convert
    from context_compaction.wire.files import read_conversation

__all__ = [
    "FORMATS",
    "POLICIES",
    "AnthropicModel",
    "Archive",
    "ArchiveBusyError",
    "ArchiveDamagedError",
    "ArchiveError",
    "ArchiveFullError",
    "Blob",
    "Boundary",
    "Budget",
    "CompactRequest",
    "CompactResult",
    "CompactionError",
    "CompactionStats",
    "Conversation",
    "DiskFile",
    "Edit",
    "Hit",
    "HookError",
    "InvalidMessageError",
    "LayerReport",
    "LocalArchive",
    "Message",
    "MessageCounter",
    "Messages",
    "ModelAnswer",
    "ModelPrompt",
    "ModelUsage",
    "NotFoundError",
    "PathNotAllowedError",
    "Piece",
    "Policy",
    "Prepared",
    "PromptTooLongError",
    "Query",
    "QueryError",
    "Roots",
    "SearchPage",
    "Settings",
    "SettingsError",
    "Splice",
    "SummaryError",
    "SummaryModel",
    "SummaryPrompt",
    "TokenReport",
    "UnknownFormatError",
    "VocabularyError",
    "apply_splices",
    "compact",
    "convert",
    "counter_for",
    "detect",
    "make_budget",
    "make_splices",
    "open_archive",
    "parse",
    "read_conversation",
    "render",
    "roots_of",
]

# Where each public name is defined, below this package; the imports above say the same to type
# checkers.
_NAMES_BY_MODULE = {
    "archive": ("Archive", "Hit", "Query", "SearchPage"),
    "archive.local": ("LocalArchive", "open_archive"),
    "budget": ("Budget", "make_budget"),
    "compaction": (
        "Boundary",
        "CompactRequest",
        "CompactResult",
        "CompactionStats",
        "LayerReport",
        "Piece",
        "Prepared",
        "SummaryPrompt",
        "TokenReport",
    ),
    "edits": ("Blob", "Edit"),
    "errors": (
        "ArchiveBusyError",
        "ArchiveDamagedError",
        "ArchiveError",
        "ArchiveFullError",
        "CompactionError",
        "HookError",
        "InvalidMessageError",
        "NotFoundError",
        "PathNotAllowedError",
        "PromptTooLongError",
        "QueryError",
        "SettingsError",
        "SummaryError",
        "UnknownFormatError",
        "VocabularyError",
    ),
    "messages": ("Message", "Messages"),
    "pipeline": ("compact",),
    "policies": ("POLICIES", "Policy"),
    "roots": ("DiskFile", "Roots", "roots_of"),
    "settings": ("Settings",),
    "summarizers.anthropic": ("AnthropicModel",),
    "summarizers.model": ("ModelAnswer", "ModelPrompt", "ModelUsage", "SummaryModel"),
    "splices": ("Splice", "apply_splices", "make_splices"),
    "tokens": ("MessageCounter", "counter_for"),
    "wire": ("FORMATS", "detect", "parse", "render"),
    "wire.conversation": ("Conversation",),
    "wire.convert": ("convert",),
    "wire.files": ("read_conversation",),
}
_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}


if not TYPE_CHECKING:  # so that type checkers report a name that does not exist

    def __getattr__(name: str) -> Any:
        """Load a public name from the module that defines it, once."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

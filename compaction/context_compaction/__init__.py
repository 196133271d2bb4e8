"""Make a conversation fit its context window: nothing lost, always valid, no LLM needed.

The public names, `__all__`, are the contract; everything else may change. Each is loaded when it is
first used, so that importing the library takes almost no time::

    async with open_archive(Path("archive")) as archive:
        result = await compact(messages, CompactRequest(context_window=200_000), archive=archive)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from context_compaction.archive import Archive, Hit, Query, SearchPage
    from context_compaction.archive.local.archive import LocalArchive
    from context_compaction.archive.opening import open_archive
    from context_compaction.budget import Budget, make_budget
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
    from context_compaction.file_access import DiskFile, Roots, roots_of
    from context_compaction.formats import FORMATS, detect, parse, render
    from context_compaction.formats.convert import convert
    from context_compaction.formats.session_files.model import Conversation
    from context_compaction.formats.session_files.read import read_conversation
    from context_compaction.messages.edits import Blob, Edit
    from context_compaction.messages.model import Message, Messages
    from context_compaction.pipeline.compact import compact
    from context_compaction.pipeline.losses import read_losses
    from context_compaction.policies import POLICIES, Policy
    from context_compaction.request import CompactRequest
    from context_compaction.result import (
        Boundary,
        CompactionStats,
        CompactResult,
        LayerReport,
        Piece,
        Prepared,
        Recognised,
        SummaryPrompt,
        TokenReport,
    )
    from context_compaction.settings import Settings
    from context_compaction.splices import Splice, apply_splices, make_splices
    from context_compaction.summarizers.llm.anthropic import AnthropicModel
    from context_compaction.summarizers.llm.model import (
        ModelAnswer,
        ModelPrompt,
        ModelUsage,
        SummaryModel,
    )
    from context_compaction.tokens.counter import MessageCounter, counter_for


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
    "Recognised",
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
    "read_losses",
    "render",
    "roots_of",
]

# Where each public name is defined, below this package; the imports above say the same to type
# checkers.
_NAMES_BY_MODULE = {
    "archive": (
        "Archive",
        "Hit",
        "Query",
        "SearchPage",
    ),
    "archive.local.archive": ("LocalArchive",),
    "archive.opening": ("open_archive",),
    "budget": (
        "Budget",
        "make_budget",
    ),
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
    "file_access": (
        "DiskFile",
        "Roots",
        "roots_of",
    ),
    "formats": (
        "FORMATS",
        "detect",
        "parse",
        "render",
    ),
    "formats.convert": ("convert",),
    "formats.session_files.model": ("Conversation",),
    "formats.session_files.read": ("read_conversation",),
    "messages.edits": (
        "Blob",
        "Edit",
    ),
    "messages.model": (
        "Message",
        "Messages",
    ),
    "pipeline.compact": ("compact",),
    "pipeline.losses": ("read_losses",),
    "policies": (
        "POLICIES",
        "Policy",
    ),
    "request": ("CompactRequest",),
    "result": (
        "Boundary",
        "CompactResult",
        "CompactionStats",
        "LayerReport",
        "Piece",
        "Prepared",
        "Recognised",
        "SummaryPrompt",
        "TokenReport",
    ),
    "settings": ("Settings",),
    "splices": (
        "Splice",
        "apply_splices",
        "make_splices",
    ),
    "summarizers.llm.anthropic": ("AnthropicModel",),
    "summarizers.llm.model": (
        "ModelAnswer",
        "ModelPrompt",
        "ModelUsage",
        "SummaryModel",
    ),
    "tokens.counter": (
        "MessageCounter",
        "counter_for",
    ),
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

"""Make a conversation fit its context window: nothing lost, always valid, no LLM needed.

The public names, `__all__`, are the contract; everything else may change. Each is loaded when it is
first used, so that importing the library takes almost no time::

    async with open_archive(Path("archive")) as archive:
        result = await compact(messages, CompactRequest(context_window=200_000), archive=archive)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from context_compaction.activity.digest import plan_of as plan_of
    from context_compaction.activity.outcome import TERMINAL_CODE as TERMINAL_CODE
    from context_compaction.activity.calls import classify as classify
    from context_compaction.archive import (
        AccessToken as AccessToken,
        Archive as Archive,
        ArchivedMessage as ArchivedMessage,
        CompactedLists as CompactedLists,
        ContextEntry as ContextEntry,
        Health as Health,
        History as History,
        Hit as Hit,
        OutputInfo as OutputInfo,
        PrunePlan as PrunePlan,
        PruneRules as PruneRules,
        Query as Query,
        SearchPage as SearchPage,
        SessionInfo as SessionInfo,
        SessionUsage as SessionUsage,
        StoredReceipt as StoredReceipt,
        Usage as Usage,
        check_tenant as check_tenant,
        shown_address as shown_address,
    )
    from context_compaction.archive.documents import is_encoded as is_encoded, role_of as role_of
    from context_compaction.archive.local.archive import LocalArchive as LocalArchive
    from context_compaction.archive.local.durable_files import (
        make_folder as make_folder,
        put_file as put_file,
    )
    from context_compaction.archive.opening import (
        Copied as Copied,
        copy_archive as copy_archive,
        open_archive as open_archive,
    )
    from context_compaction.archive.search.hits import (
        MAX_HITS_PER_OUTPUT as MAX_HITS_PER_OUTPUT,
        PASSAGE_CHARS as PASSAGE_CHARS,
        SNIPPET_CHARS as SNIPPET_CHARS,
        passage_span as passage_span,
    )
    from context_compaction.archive.search.patterns import open_matcher as open_matcher
    from context_compaction.archive.search.word_search import asked_times as asked_times
    from context_compaction.budget import Budget as Budget, make_budget as make_budget
    from context_compaction.errors import (
        ArchiveBusyError as ArchiveBusyError,
        ArchiveDamagedError as ArchiveDamagedError,
        ArchiveError as ArchiveError,
        ArchiveFullError as ArchiveFullError,
        CompactionError as CompactionError,
        HookError as HookError,
        InvalidMessageError as InvalidMessageError,
        NotFoundError as NotFoundError,
        PathNotAllowedError as PathNotAllowedError,
        PromptTooLongError as PromptTooLongError,
        QueryError as QueryError,
        SettingsError as SettingsError,
        SummaryError as SummaryError,
        UnknownFormatError as UnknownFormatError,
        VocabularyError as VocabularyError,
    )
    from context_compaction.file_access import (
        DiskFile as DiskFile,
        Roots as Roots,
        default_folders as default_folders,
        host_folders as host_folders,
        roots_of as roots_of,
    )
    from context_compaction.formats import (
        FORMATS as FORMATS,
        detect as detect,
        goes_on as goes_on,
        parse as parse,
        render as render,
    )
    from context_compaction.formats.convert import convert as convert, split_system as split_system
    from context_compaction.formats.session_files.model import (
        Conversation as Conversation,
        NewSession as NewSession,
    )
    from context_compaction.formats.session_files.read import read_conversation as read_conversation
    from context_compaction.formats.session_files.write import WRITERS as WRITERS
    from context_compaction.hooks import ReportProgress as ReportProgress
    from context_compaction.layers.preview import preview as preview
    from context_compaction.messages.edits import (
        Blob as Blob,
        Edit as Edit,
        make_blob as make_blob,
        output_id_of as output_id_of,
    )
    from context_compaction.messages.history_hash import history_hash as history_hash
    from context_compaction.messages.model import (
        Block as Block,
        Document as Document,
        Image as Image,
        JsonObject as JsonObject,
        Message as Message,
        Messages as Messages,
        Opaque as Opaque,
        Text as Text,
        Thinking as Thinking,
        ToolCall as ToolCall,
        ToolResult as ToolResult,
        compact_json as compact_json,
        is_list as is_list,
        is_object as is_object,
        named_arguments as named_arguments,
        text_of as text_of,
        tool_calls as tool_calls,
        tool_results as tool_results,
    )
    from context_compaction.messages.placeholders import (
        claimed_span as claimed_span,
        ids_in_placeholder as ids_in_placeholder,
        is_request as is_request,
        persisted as persisted,
        seems_synthetic as seems_synthetic,
    )
    from context_compaction.messages.tool_results import result_text as result_text
    from context_compaction.pipeline.compact import compact as compact
    from context_compaction.pipeline.losses import (
        read_losses as read_losses,
        with_losses as with_losses,
    )
    from context_compaction.pipeline.summarize import session_notes as session_notes
    from context_compaction.policies import (
        POLICIES as POLICIES,
        Policy as Policy,
        policy_named as policy_named,
    )
    from context_compaction.redaction import (
        REDACTION_MODES as REDACTION_MODES,
        RedactionMode as RedactionMode,
        redact as redact,
        redact_json as redact_json,
    )
    from context_compaction.request import (
        DEFAULT_TENANT as DEFAULT_TENANT,
        CompactRequest as CompactRequest,
        Mode as Mode,
        SummarizerName as SummarizerName,
    )
    from context_compaction.result import (
        Boundary as Boundary,
        CompactResult as CompactResult,
        CompactionStats as CompactionStats,
        LayerReport as LayerReport,
        Piece as Piece,
        Prepared as Prepared,
        Recognised as Recognised,
        Status as Status,
        SummaryPrompt as SummaryPrompt,
        TokenReport as TokenReport,
    )
    from context_compaction.session.resume import (
        CurrentContext as CurrentContext,
        append_to_session as append_to_session,
        current_context as current_context,
        is_recent as is_recent,
        name_if_current as name_if_current,
    )
    from context_compaction.settings import (
        SETTING_NAMES as SETTING_NAMES,
        STRATEGY_NAMES as STRATEGY_NAMES,
        Settings as Settings,
    )
    from context_compaction.splices import (
        Splice as Splice,
        apply_splices as apply_splices,
        make_splices as make_splices,
    )
    from context_compaction.summarizers.llm.anthropic import AnthropicModel as AnthropicModel
    from context_compaction.summarizers.llm.model import (
        ModelAnswer as ModelAnswer,
        ModelPrompt as ModelPrompt,
        ModelUsage as ModelUsage,
        SummaryModel as SummaryModel,
        TellChars as TellChars,
    )
    from context_compaction.summarizers.llm.prompt import answer_tokens as answer_tokens
    from context_compaction.tokens.counter import (
        MessageCounter as MessageCounter,
        counter_for as counter_for,
    )
    from context_compaction.tokens.models import profile_for as profile_for

# Where each public name is defined, below this package. The imports above say the same to type
# checkers.
_NAMES_BY_MODULE = {
    "activity.digest": "plan_of",
    "activity.outcome": "TERMINAL_CODE",
    "activity.calls": "classify",
    "archive": (
        "AccessToken Archive ArchivedMessage CompactedLists ContextEntry Health History Hit "
        "OutputInfo PrunePlan PruneRules Query SearchPage SessionInfo SessionUsage "
        "StoredReceipt Usage check_tenant shown_address"
    ),
    "archive.documents": "is_encoded role_of",
    "archive.local.archive": "LocalArchive",
    "archive.local.durable_files": "make_folder put_file",
    "archive.opening": "Copied copy_archive open_archive",
    "archive.search.hits": "MAX_HITS_PER_OUTPUT PASSAGE_CHARS SNIPPET_CHARS passage_span",
    "archive.search.patterns": "open_matcher",
    "archive.search.word_search": "asked_times",
    "budget": "Budget make_budget",
    "errors": (
        "ArchiveBusyError ArchiveDamagedError ArchiveError ArchiveFullError CompactionError "
        "HookError InvalidMessageError NotFoundError PathNotAllowedError PromptTooLongError "
        "QueryError SettingsError SummaryError UnknownFormatError VocabularyError"
    ),
    "file_access": "DiskFile Roots default_folders host_folders roots_of",
    "formats": "FORMATS detect goes_on parse render",
    "formats.convert": "convert split_system",
    "formats.session_files.model": "Conversation NewSession",
    "formats.session_files.read": "read_conversation",
    "formats.session_files.write": "WRITERS",
    "hooks": "ReportProgress",
    "layers.preview": "preview",
    "messages.edits": "Blob Edit make_blob output_id_of",
    "messages.history_hash": "history_hash",
    "messages.model": (
        "Block Document Image JsonObject Message Messages Opaque Text Thinking ToolCall "
        "ToolResult compact_json is_list is_object named_arguments text_of tool_calls "
        "tool_results"
    ),
    "messages.placeholders": "claimed_span ids_in_placeholder is_request persisted seems_synthetic",
    "messages.tool_results": "result_text",
    "pipeline.compact": "compact",
    "pipeline.losses": "read_losses with_losses",
    "pipeline.summarize": "session_notes",
    "policies": "POLICIES Policy policy_named",
    "redaction": "REDACTION_MODES RedactionMode redact redact_json",
    "request": "DEFAULT_TENANT CompactRequest Mode SummarizerName",
    "result": (
        "Boundary CompactResult CompactionStats LayerReport Piece Prepared Recognised Status "
        "SummaryPrompt TokenReport"
    ),
    "session.resume": (
        "CurrentContext append_to_session current_context is_recent name_if_current"
    ),
    "settings": "SETTING_NAMES STRATEGY_NAMES Settings",
    "splices": "Splice apply_splices make_splices",
    "summarizers.llm.anthropic": "AnthropicModel",
    "summarizers.llm.model": "ModelAnswer ModelPrompt ModelUsage SummaryModel TellChars",
    "summarizers.llm.prompt": "answer_tokens",
    "tokens.counter": "MessageCounter counter_for",
    "tokens.models": "profile_for",
}
_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}

__all__: list[str]

if not TYPE_CHECKING:  # so that type checkers report a name that does not exist
    __all__ = sorted(_MODULE_OF)

    def __getattr__(name: str) -> Any:
        """Load a public name from the module that defines it, once."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})

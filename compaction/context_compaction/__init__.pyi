from .activity.calls import classify as classify
from .activity.digest import plan_of as plan_of
from .activity.files import follow_files as follow_files
from .activity.known_file import KnownFile as KnownFile
from .activity.outcome import TERMINAL_CODE as TERMINAL_CODE
from .activity.outcome import is_cut as is_cut
from .archive.archive import Archive as Archive
from .archive.values import (
    AccessToken as AccessToken,
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
from .archive.records import is_encoded as is_encoded, role_of as role_of
from .archive.local.log import (
    ReportWork as ReportWork,
    report_work as report_work,
    reporting_work as reporting_work,
)
from .archive.local.archive import LocalArchive as LocalArchive
from .archive.local.durable_files import (
    make_folder as make_folder,
    put_file as put_file,
)
from .archive.opening import (
    Copied as Copied,
    copy_archive as copy_archive,
    open_archive as open_archive,
)
from .archive.search.hits import (
    MAX_HITS_PER_OUTPUT as MAX_HITS_PER_OUTPUT,
    PASSAGE_CHARS as PASSAGE_CHARS,
    SNIPPET_CHARS as SNIPPET_CHARS,
    passage_span as passage_span,
)
from .archive.search.patterns import open_matcher as open_matcher
from .budget import Budget as Budget, window_budget as window_budget, window_of as window_of
from .errors import (
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
    is_prompt_too_long as is_prompt_too_long,
)
from .file_access import (
    DiskFile as DiskFile,
    Roots as Roots,
    default_folders as default_folders,
    host_folders as host_folders,
    roots_of as roots_of,
)
from .formats import (
    FORMATS as FORMATS,
    detect as detect,
    parse as parse,
    render as render,
)
from .formats.convert import convert as convert, split_system as split_system
from .formats.session_files.hosts import WRITERS as WRITERS
from .formats.session_files.model import (
    Conversation as Conversation,
    NewSession as NewSession,
)
from .formats.session_files.read import read_conversation as read_conversation
from .layers import LAYERS as LAYERS
from .layers.preview import preview as preview
from .messages.model import (
    Blob as Blob,
    Edit as Edit,
    make_blob as make_blob,
    output_id_of as output_id_of,
)
from .messages.raw import history_hash as history_hash
from .messages.model import (
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
    decode_json as decode_json,
    is_list as is_list,
    is_object as is_object,
    named_arguments as named_arguments,
    text_of as text_of,
    tool_calls as tool_calls,
    tool_results as tool_results,
)
from .messages.names import kind_of as kind_of
from .messages.names import names_in as names_in
from .messages.placeholders import (
    claimed_span as claimed_span,
    ids_in_placeholder as ids_in_placeholder,
    is_request as is_request,
    persisted as persisted,
    seems_synthetic as seems_synthetic,
)
from .messages.model import result_text as result_text
from .pipeline.compact import ReportProgress as ReportProgress, compact as compact
from .pipeline.dropped_names import (
    read_dropped_names as read_dropped_names,
    with_dropped_names as with_dropped_names,
)
from .pipeline.summarize import session_notes as session_notes
from .policies import (
    POLICIES as POLICIES,
    Policy as Policy,
    policy_named as policy_named,
)
from .redaction import (
    REDACTION_MODES as REDACTION_MODES,
    RedactionMode as RedactionMode,
    redact as redact,
    redact_json as redact_json,
)
from .request import (
    CompactRequest as CompactRequest,
    Detail as Detail,
    Mode as Mode,
    SummarizerName as SummarizerName,
)
from .result import (
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
from .session.resume import (
    append_to_session as append_to_session,
)
from .request import (
    SETTING_NAMES as SETTING_NAMES,
    Settings as Settings,
)
from .result import (
    Splice as Splice,
    apply_splices as apply_splices,
    make_splices as make_splices,
)
from .summarizers.llm.anthropic import AnthropicModel as AnthropicModel
from .summarizers.llm.model import (
    ModelAnswer as ModelAnswer,
    ModelPrompt as ModelPrompt,
    ModelUsage as ModelUsage,
    SummaryModel as SummaryModel,
    TellChars as TellChars,
    answer_tokens as answer_tokens,
    estimated_usage as estimated_usage,
)
from .summarizers.llm.named_model import (
    check_summary_model as check_summary_model,
    summary_model as summary_model,
)
from .summarizers.llm.openai import OpenAIModel as OpenAIModel
from .tokens.counter import (
    MESSAGE_TOKENS as MESSAGE_TOKENS,
    MessageCounter as MessageCounter,
    counter_for as counter_for,
)
from .tokens.models import profile_for as profile_for

__all__: list[str]

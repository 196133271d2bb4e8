"""What the tools take and what they answer. Field descriptions are read by models: keep them short.

The definitions are in every host's context on every turn, so name, description and input schema
of all four tools together stay within 1,000 tokens (a test counts them).
"""

from typing import Annotated, Any, Literal

from context_compaction import (
    Boundary,
    LayerReport,
    Mode,
    Splice,
    Status,
    SummaryPrompt,
    TokenReport,
)
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    NonNegativeInt,
    PositiveInt,
    StrictStr,
    model_validator,
)

from mcp_server_compaction.config import WriterName
from mcp_server_compaction.protocol.arguments import Arguments

# So many characters of a stored text in one answer, at most.
MAX_READ_CHARS = 200_000

Reply = Literal["messages", "edits", "receipt"]
ResumeHost = Literal["claude-code", "codex", "pi"]
# Lists are refused at their first wrong element: of twenty million, the errors filled the memory.
# The objects stay as they were decoded: of each dict, pydantic would make a copy.
Decoded = Annotated[list[InstanceOf[dict[str, Any]]], Field(fail_fast=True)]
Places = Annotated[tuple[NonNegativeInt, ...], Field(fail_fast=True)]
Texts = Annotated[tuple[StrictStr, ...], Field(fail_fast=True)]


class CompactArguments(Arguments):
    """Arguments of `compact_messages`."""

    messages: Decoded | None = None
    """The whole list."""
    new_messages: Decoded | None = None
    """Only new; optional with session_id."""
    transcript_path: str | None = None
    """A session file, or current."""
    session_id: str | None = None
    mode: Mode = "auto"
    """plan: only tell. micro: clear. full: summarize. reactive: provider said prompt too long.
    record: archive, count."""
    context_window: PositiveInt | None = None
    """Else the session's or model's."""
    target_tokens: PositiveInt | None = None
    policy: str | None = None
    """200K: default acts at 170K, leaves 51K; economy 84K, 13K."""
    summarizer: WriterName = "auto"
    """host: you write it."""
    summary: str | None = None
    """Yours, after needs_summary; with record: for later."""
    instructions: str | None = None
    """What to keep."""
    reply: Reply | None = None
    """edits: splices on your list, the default if fewer."""
    options: dict[str, Any] | None = None
    """Rare: see options://compact_messages."""

    @model_validator(mode="after")
    def _one_source(self) -> "CompactArguments":
        sources = (self.messages, self.new_messages, self.transcript_path)
        count = sum(source is not None for source in sources)
        if count > 1 or (not count and not self.session_id):
            raise ValueError(
                "give exactly one of messages, new_messages, transcript_path; or the session_id "
                "alone, for the context that the archive holds of it"
            )
        if self.new_messages is not None and not self.session_id:
            raise ValueError("new_messages needs the session_id of the earlier call")
        return self


class CompactOptions(Arguments):
    """The rare settings of `compact_messages`, beside the constants of a policy."""

    model: str | None = None
    """Model name, for its window and tokenizer."""
    max_output_tokens: PositiveInt | None = None
    """Tokens the answer may take."""
    overhead_tokens: NonNegativeInt = 0
    """Tokens of system prompt and tools, where those are not given."""
    system: str | list[Any] | dict[str, Any] | None = None
    """The system prompt, as the request carries it: counted, and what the user says against one of
    its rules is marked."""
    tools: Decoded | None = None
    """The tool definitions, as the request carries them: counted, and where the messages leave the
    format open, theirs is taken."""
    usage: dict[str, Any] | None = None
    """The provider's last usage report, which anchors the count."""
    usage_message_index: NonNegativeInt | None = None
    """Index of the message that the usage was reported for."""
    pinned: Texts = ()
    """Texts that every summary carries word for word, from this call on. A passage of the user may
    also be marked in place: <pin>…</pin>."""
    pinned_messages: Places = ()
    """Places in the messages of this call, from 0: their text is carried from the moment they
    leave, and their results are not cleared."""
    snip_messages: Places = ()
    """Places in the whole list, from 0, of messages that are needed no more: they leave now, each
    call with its result, and a line with a pointer stands for each gap. receipt.snip has
    tokens_freed and boundary_messages."""
    unpin: Texts = ()
    """Texts, or ids from receipt.pins, that later summaries no longer carry."""
    format: str | None = None
    """anthropic, openai-chat, openai-responses, gemini, pi or bedrock-converse; else found from the
    shape."""
    parent_session_id: str | None = None
    """The session that started this one."""
    context_hash: str | None = None
    """With new_messages: the context_hash of the last answer. Refused where the session's context
    is another by now; hand in the whole list then."""
    continuation: str | None = None
    """With summary: what summary_request had under this name."""
    idle_seconds: float = Field(default=0.0, ge=0)
    """How long the conversation rested."""
    prepare: bool = False
    """Compact what stands there now, but keep the outcome for a later apply."""
    resume: ResumeHost | None = None
    """With transcript_path: write what was left as a session that this host goes on with, beside
    the original; next_step has the line that continues it."""
    apply: str | None = None
    """A prepared_id: replace the messages that it was prepared for, and no others."""


class PersistArguments(Arguments):
    """Arguments of `persist_large_output`."""

    output: str | None = None
    path: str | None = None
    """Or a file."""
    session_id: str | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    threshold_tokens: NonNegativeInt | None = None
    """Store nothing below."""
    preview_chars: Annotated[int, Field(ge=0, le=6_000)] | None = None

    @model_validator(mode="after")
    def _one_source(self) -> "PersistArguments":
        if (self.output is None) == (self.path is None):
            raise ValueError("give either output or path")
        return self


class ReadArguments(Arguments):
    """Arguments of `read_persisted_output`."""

    output_id: str
    """o_…, transcript://S/messages/3-7, S/files/PATH@7, S/plan/2."""
    start_line: PositiveInt | None = None
    offset: NonNegativeInt | None = None
    """In characters."""
    limit: PositiveInt | None = None
    """Lines; characters with offset; matches with pattern."""
    pattern: str | None = None
    """Text or regex, as grep -n."""
    context: Annotated[int, Field(ge=0, le=50)] | None = None
    """Lines around a match."""
    tail: PositiveInt | None = None
    """Last lines."""
    json_path: str | None = None
    """$.items[*].id"""
    as_json: bool | None = None
    """As exact JSON lines."""

    @model_validator(mode="after")
    def _one_way(self) -> "ReadArguments":
        ways = (self.offset, self.tail, self.pattern)
        if sum(way is not None for way in ways) > 1:
            raise ValueError("give at most one of offset, tail, pattern")
        if self.start_line is not None and (self.offset is not None or self.tail is not None):
            raise ValueError("start_line goes with neither offset nor tail")
        if self.context is not None and self.pattern is None:
            raise ValueError("context needs a pattern")
        return self


class SearchArguments(Arguments):
    """Arguments of `search_transcript`."""

    query: Annotated[str, Field(min_length=1)]
    session_id: str | None = None
    """Or ID@head: branch."""
    role: Literal["system", "user", "assistant", "tool"] | None = None
    tool: str | None = None
    path: str | None = None
    since: str | None = None
    """ISO 8601."""
    until: str | None = None
    kind: Literal["words", "phrase", "regex"] = "words"
    order: Literal["relevance", "recent"] = "relevance"
    limit: Annotated[int, Field(ge=1, le=50)] = 10
    cursor: str | None = None
    """The last next_cursor."""


class Answer(BaseModel):
    """Base of every structured answer; an empty field is left out."""

    model_config = ConfigDict(extra="forbid", defer_build=True, use_attribute_docstrings=True)


class PreparedFigures(Answer):
    """What is kept to be applied later."""

    prepared_id: str
    message_count: int
    """First messages that it replaces."""
    prefix_hash: str
    expires: str


class CompactAnswer(Answer):
    """Answer of `compact_messages`."""

    session_id: str
    format: str
    status: Status
    changed: bool
    """Whether the list that goes out differs."""
    fits: bool
    """Whether tokens.upper is within tokens.limit (and bytes)."""
    tokens: TokenReport
    layers: list[LayerReport] = []
    boundary: Boundary | None = None
    restored: list[str] = []
    irreducible: list[str] = []
    warnings: list[str] = []
    next_step: str | None = None
    message_count: int
    """Messages of the list that goes out."""
    summary: str | None = None
    written_by: str | None = None
    """Who wrote the summary."""
    summary_request: SummaryPrompt | None = None
    prepared: PreparedFigures | None = None
    receipt: dict[str, Any] | None = None
    """What else it says, shortened; whole under receipt_pointer."""
    context_pointer: str | None = None
    """The compacted context, to be read."""
    receipt_pointer: str | None = None
    resume_path: str | None = None
    """Where options.resume wrote."""
    messages: list[dict[str, Any]] | None = None
    """The new list, if it changed and was asked for."""
    edits: list[Splice] | None = None
    context_hash: str | None = None
    """With reply='edits': for options.context_hash of the next call."""


class PersistAnswer(Answer):
    """Answer of `persist_large_output`."""

    persisted: bool
    tokens: int
    size_chars: int
    threshold_tokens: int | None = None
    output_id: str | None = None
    size_bytes: int | None = None
    line_count: int | None = None
    session_id: str | None = None
    marker: str | None = None
    """Put this into the context instead; has preview."""
    note: str | None = None


class NextAnswer(Answer):
    """The message after a hit that ends with a question."""

    pointer: str
    role: str
    snippet: str


class HitAnswer(Answer):
    """One place where the query was found. The pointer to a message names its session."""

    pointer: str
    session_id: str | None = None
    """Of an output."""
    role: str
    tool_name: str | None = None
    time: str
    line: int | None = None
    offset_chars: int | None = None
    """Of the match, if shown in part."""
    size_chars: int | None = None
    """Of a message shown in part."""
    snippet: str
    note: str | None = None
    """Of an edit: old or new, still there."""
    next: NextAnswer | None = None
    """What follows a question."""


class SearchAnswer(Answer):
    """Answer of `search_transcript`."""

    hits: list[HitAnswer]
    total: int
    total_is_exact: bool
    next_cursor: str | None = None
    note: str | None = None

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
Places = Annotated[list[NonNegativeInt], Field(fail_fast=True)]
Texts = Annotated[list[StrictStr], Field(fail_fast=True)]


class CompactArguments(Arguments):
    """Arguments of `compact_messages`."""

    messages: Decoded | None = Field(default=None, description="The whole list.")
    new_messages: Decoded | None = Field(
        default=None, description="Only what is new; needs session_id."
    )
    transcript_path: str | None = Field(default=None, description="A session file, or current.")
    session_id: str | None = None
    mode: Mode = Field(
        default="auto",
        description="plan: only tell. micro: clear. full: summarize. "
        "reactive: provider said prompt too long. record: archive, count.",
    )
    context_window: PositiveInt | None = Field(
        default=None, description="In tokens; else by model."
    )
    target_tokens: PositiveInt | None = None
    policy: str | None = Field(
        default=None, description="200K: default acts at 170K, leaves 51K; economy 84K, 13K."
    )
    summarizer: WriterName = Field(default="auto", description="host: you write it.")
    summary: str | None = Field(
        default=None, description="Yours, after needs_summary; with record: for later."
    )
    instructions: str | None = Field(default=None, description="What to keep.")
    reply: Reply | None = Field(
        default=None,
        description="edits: splices on your list, the default if fewer.",
    )
    options: dict[str, Any] | None = Field(
        default=None, description="Rare: see options://compact_messages."
    )

    @model_validator(mode="after")
    def _one_source(self) -> "CompactArguments":
        sources = (self.messages, self.new_messages, self.transcript_path)
        if sum(source is not None for source in sources) != 1:
            raise ValueError("give exactly one of messages, new_messages, transcript_path")
        if self.new_messages is not None and not self.session_id:
            raise ValueError("new_messages needs the session_id of the earlier call")
        return self


class CompactOptions(Arguments):
    """The rare settings of `compact_messages`, beside the constants of a policy."""

    model: str | None = Field(default=None, description="Model name, for its window and tokenizer.")
    max_output_tokens: PositiveInt | None = Field(
        default=None, description="Tokens the answer may take."
    )
    overhead_tokens: NonNegativeInt = Field(
        default=0, description="Tokens of system prompt and tools, where those are not given."
    )
    system: str | list[Any] | dict[str, Any] | None = Field(
        default=None,
        description="The system prompt, as the request carries it: counted, and what the user says "
        "against one of its rules is marked.",
    )
    tools: Decoded | None = Field(
        default=None,
        description="The tool definitions, as the request carries them: counted, and where the "
        "messages leave the format open, theirs is taken.",
    )
    usage: dict[str, Any] | None = Field(
        default=None, description="The provider's last usage report, which anchors the count."
    )
    usage_message_index: NonNegativeInt | None = Field(
        default=None, description="Index of the message that the usage was reported for."
    )
    pinned: Texts = Field(
        default=[],
        description="Texts that every summary carries word for word, from this call on. A passage "
        "of the user may also be marked in place: <pin>…</pin>.",
    )
    pinned_messages: Places = Field(
        default=[],
        description="Places in the messages of this call, from 0: their text is carried from the "
        "moment they leave, and their results are not cleared.",
    )
    snip_messages: Places = Field(
        default=[],
        description="Places in the whole list, from 0, of messages that are needed no more: they "
        "leave now, each call with its result, and a line with a pointer stands for each gap. "
        "receipt.snip has tokens_freed and boundary_messages.",
    )
    unpin: Texts = Field(
        default=[],
        description="Texts, or ids from receipt.pins, that later summaries no longer carry.",
    )
    format: str | None = Field(
        default=None,
        description="anthropic, openai-chat, openai-responses, gemini, pi or bedrock-converse; "
        "else found from the shape.",
    )
    parent_session_id: str | None = Field(
        default=None, description="The session that started this one."
    )
    context_hash: str | None = Field(
        default=None,
        description="With new_messages: the context_hash of the last answer. Refused where the "
        "session's context is another by now; hand in the whole list then.",
    )
    continuation: str | None = Field(
        default=None, description="With summary: what summary_request had under this name."
    )
    idle_seconds: float = Field(default=0.0, ge=0, description="How long the conversation rested.")
    prepare: bool = Field(
        default=False,
        description="Compact what stands there now, but keep the outcome for a later apply.",
    )
    resume: ResumeHost | None = Field(
        default=None,
        description="With transcript_path: write what was left as a session that this host goes "
        "on with, beside the original; next_step has the line that continues it.",
    )
    apply: str | None = Field(
        default=None,
        description="A prepared_id: replace the messages that it was prepared for, and no others.",
    )


class PersistArguments(Arguments):
    """Arguments of `persist_large_output`."""

    output: str | None = None
    path: str | None = Field(default=None, description="Or a file.")
    session_id: str | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    threshold_tokens: NonNegativeInt | None = Field(
        default=None, description="Store nothing below."
    )
    preview_chars: Annotated[int, Field(ge=0, le=6_000)] | None = None

    @model_validator(mode="after")
    def _one_source(self) -> "PersistArguments":
        if (self.output is None) == (self.path is None):
            raise ValueError("give either output or path")
        return self


class ReadArguments(Arguments):
    """Arguments of `read_persisted_output`."""

    output_id: str = Field(
        description="o_…, transcript://S/messages/3-7, S/files/PATH@7, S/plan/2."
    )
    start_line: PositiveInt | None = None
    offset: NonNegativeInt | None = Field(default=None, description="In characters.")
    limit: PositiveInt | None = Field(
        default=None, description="Lines; characters with offset; matches with pattern."
    )
    pattern: str | None = Field(default=None, description="Text or regex, as grep -n.")
    context: Annotated[int, Field(ge=0, le=50)] | None = Field(
        default=None, description="Lines around a match."
    )
    tail: PositiveInt | None = Field(default=None, description="Last lines.")
    json_path: str | None = Field(default=None, description="$.items[*].id")
    as_json: bool | None = Field(default=None, description="As exact JSON lines.")

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
    session_id: str | None = Field(default=None, description="Or ID@head: branch.")
    role: Literal["system", "user", "assistant", "tool"] | None = None
    tool: str | None = None
    path: str | None = None
    since: str | None = Field(default=None, description="ISO 8601.")
    until: str | None = None
    kind: Literal["words", "phrase", "regex"] = "words"
    order: Literal["relevance", "recent"] = "relevance"
    limit: Annotated[int, Field(ge=1, le=50)] = 10
    cursor: str | None = Field(default=None, description="The last next_cursor.")


class Answer(BaseModel):
    """Base of every structured answer; an empty field is left out."""

    model_config = ConfigDict(extra="forbid", defer_build=True)


class PreparedFigures(Answer):
    """What is kept to be applied later."""

    prepared_id: str
    message_count: int = Field(description="First messages that it replaces.")
    prefix_hash: str
    expires: str


class CompactAnswer(Answer):
    """Answer of `compact_messages`."""

    session_id: str
    format: str
    status: Status
    changed: bool = Field(description="Whether the list that goes out differs.")
    fits: bool = Field(description="Whether tokens.upper is within tokens.limit (and bytes).")
    tokens: TokenReport
    layers: list[LayerReport] = []
    boundary: Boundary | None = None
    restored: list[str] = []
    irreducible: list[str] = []
    warnings: list[str] = []
    next_step: str | None = None
    message_count: int = Field(description="Messages of the list that goes out.")
    summary: str | None = None
    written_by: str | None = Field(default=None, description="Who wrote the summary.")
    summary_request: SummaryPrompt | None = None
    prepared: PreparedFigures | None = None
    receipt: dict[str, Any] | None = Field(
        default=None, description="What else it says, shortened; whole under receipt_pointer."
    )
    context_pointer: str | None = Field(
        default=None, description="The compacted context, to be read."
    )
    receipt_pointer: str | None = None
    resume_path: str | None = Field(default=None, description="Where options.resume wrote.")
    messages: list[dict[str, Any]] | None = Field(
        default=None, description="The new list, if it changed and was asked for."
    )
    edits: list[Splice] | None = None
    context_hash: str | None = Field(
        default=None, description="With reply='edits': for options.context_hash of the next call."
    )


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
    marker: str | None = Field(
        default=None, description="Put this into the context instead; has preview."
    )
    note: str | None = None


class NextAnswer(Answer):
    """The message after a hit that ends with a question."""

    pointer: str
    role: str
    snippet: str


class HitAnswer(Answer):
    """One place where the query was found. The pointer to a message names its session."""

    pointer: str
    session_id: str | None = Field(default=None, description="Of an output.")
    role: str
    tool_name: str | None = None
    time: str
    line: int | None = None
    offset_chars: int | None = Field(default=None, description="Of the match, if shown in part.")
    size_chars: int | None = Field(default=None, description="Of a message shown in part.")
    snippet: str
    note: str | None = Field(default=None, description="Of an edit: old or new, still there.")
    next: NextAnswer | None = Field(default=None, description="What follows a question.")


class SearchAnswer(Answer):
    """Answer of `search_transcript`."""

    hits: list[HitAnswer]
    total: int
    total_is_exact: bool
    next_cursor: str | None = None
    note: str | None = None

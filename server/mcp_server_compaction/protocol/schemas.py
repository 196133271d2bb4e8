"""Arguments and replies of the tools.

Models read the descriptions of the arguments: name, description and input schema of all four tools
are in every host's context on every turn. A test limits them to 1,400 tokens together.

The SDK ignores unknown arguments, so a misspelled argument would have no effect. Here it is an
error that names similar arguments. Types are converted if nothing is lost, as in "5" for 5.
"""

import difflib
import json
import reprlib
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar, cast

from context_compaction import (
    Boundary,
    Detail,
    LayerReport,
    Mode,
    SettingsError,
    Splice,
    Status,
    SummaryPrompt,
    TokenReport,
    is_list,
    is_object,
)
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    NonNegativeInt,
    PositiveInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from mcp_server_compaction.config import WriterName

# Maximum size of a stored text in one reply, in characters.
MAX_READ_CHARS = 200_000

ReplyKind = Literal["messages", "edits", "receipt"]
_MAX_PROBLEMS = 5
# Keywords in use that the tool list omits to save tokens. A call outside a bound gets an error that
# names the bound.
BOUNDS = frozenset({"exclusiveMinimum", "maximum", "minLength", "minimum"})
_NOISE = (("default", None), ("additionalProperties", True))


class Arguments(BaseModel):
    """Base of the arguments of every tool."""

    # Built at the first call, because building delays the start of the server.
    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True, use_attribute_docstrings=True
    )


def _from_json_text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value  # The validation then reports the expected type.


# A list or object may be passed as JSON text, because some hosts encode it so.
JSON_TEXT = BeforeValidator(_from_json_text)
ArgumentsT = TypeVar("ArgumentsT", bound=Arguments)
# A list is refused at its first wrong element, because the errors of twenty million elements would
# fill the memory. `InstanceOf` keeps the decoded objects, because pydantic would copy each dict.
MessageList = Annotated[list[InstanceOf[dict[str, Any]]], Field(fail_fast=True), JSON_TEXT]
Indices = Annotated[tuple[NonNegativeInt, ...], Field(fail_fast=True), JSON_TEXT]
Texts = Annotated[tuple[StrictStr, ...], Field(fail_fast=True), JSON_TEXT]
Range = Annotated[tuple[NonNegativeInt, NonNegativeInt], JSON_TEXT]
Object = Annotated[dict[str, Any], JSON_TEXT]


class CompactArguments(Arguments):
    """Arguments of `compact_messages`."""

    messages: MessageList | None = None
    """The whole conversation, in the provider's format."""
    new_messages: MessageList | None = None
    """Instead: those added since the last call; needs session_id."""
    transcript_path: str | None = None
    """Instead: a host's session file, or 'current'."""
    session_id: str | None = None
    """Default: derived from the first messages. Alone: compacts that archived session."""
    mode: Mode = "auto"
    """auto: compact if needed. plan: report what auto would do. micro: clear tool results, no
    summary. full: summarize now. reactive: the prompt was too long. record: archive only. undo:
    take the last compaction back."""
    context_window: PositiveInt | None = None
    """In tokens. Default: the session's last, else the model's."""
    target_tokens: PositiveInt | None = None
    """Default: the policy's."""
    policy: str | None = None
    """For a 200K window: default compacts at 170K, to 51K; economy at 84K, to 13K."""
    summarizer: WriterName = "auto"
    """extractive: no LLM. host: you write the summary; the first call returns a prompt."""
    summary: str | None = None
    """Yours, after status needs_summary; with mode=record, stored for later."""
    instructions: str | None = None
    """Focus of the summary."""
    reply: ReplyKind | None = None
    """edits: splices for your list; the default when shorter."""
    options: Object | None = None
    """Rare settings: see options://compact_messages."""

    @model_validator(mode="after")
    def _one_source(self) -> "CompactArguments":
        sources = (self.messages, self.new_messages, self.transcript_path)
        count = sum(source is not None for source in sources)
        if count > 1 or (not count and not self.session_id):
            raise ValueError(
                "pass exactly one of messages, new_messages and transcript_path, or session_id "
                "alone to compact the archived context of that session"
            )
        if self.new_messages is not None and not self.session_id:
            raise ValueError("new_messages needs the session_id of the earlier call")
        return self


class CompactOptions(Arguments):
    """Rare settings of `compact_messages`, in addition to the constants of a policy."""

    model: str | None = None
    """Name of the model, which determines the window and the tokenizer."""
    max_output_tokens: PositiveInt | None = None
    """Maximum number of tokens in the model's response."""
    overhead_tokens: NonNegativeInt = 0
    """Tokens of the system prompt and the tools, if `system` and `tools` are not passed."""
    system: str | list[Any] | dict[str, Any] | None = None
    """System prompt, as in the request. Its tokens count, and rules of the user that conflict with
    it are marked."""
    tools: MessageList | None = None
    """Tool definitions, as in the request. Their tokens count, and they decide the format if the
    messages fit several formats."""
    usage: Object | None = None
    """Last usage report of the provider. Only messages after it are estimated."""
    usage_message_index: NonNegativeInt | None = None
    """Index of the message that the usage was reported for."""
    pinned: Texts = ()
    """Texts that every summary repeats verbatim, from this call on. The user can also mark a
    passage in a message: <pin>…</pin>."""
    pinned_messages: Indices = ()
    """Indices in the messages of this call, from 0. Summaries repeat their text verbatim, and their
    tool results are not cleared."""
    range: Range | None = None
    """First and last index, in the whole list, from 0, of the messages to summarize now, such as a
    finished detour; all others stay. The range grows to whole pairs of calls and results.
    target_tokens or detail then limit the summary, and summary is your text for it. receipt.range
    has the messages that were summarized."""
    detail: Detail | None = None
    """short, normal or full: leave a tenth, a quarter or half of the tokens, instead of
    target_tokens. That is a share of the messages in range, of the list with mode=full, else of the
    trigger."""
    snip_messages: Indices = ()
    """Indices in the whole list, from 0, of messages to remove now, each call together with its
    result. One line with a pointer replaces each gap. receipt.snip has tokens_freed and
    boundary_messages."""
    unpin: Texts = ()
    """Pinned texts, or pin IDs from receipt.pins, to remove from later summaries."""
    format: str | None = None
    """anthropic, openai-chat, openai-responses, gemini, pi or bedrock-converse. By default the
    format is detected."""
    parent_session_id: str | None = None
    """Session that started this one."""
    context_hash: str | None = None
    """With new_messages: the context_hash of the last reply. The call is refused if the context of
    the session has changed since; pass the whole list then."""
    continuation: str | None = None
    """With summary: the continuation of summary_request."""
    idle_seconds: float = Field(default=0.0, ge=0)
    """Seconds since the last activity. Above `idle_clear_seconds` the prompt cache is assumed cold
    and old results are cleared without a minimum saving."""
    prepare: bool = False
    """Compact the current messages now, but store the result for a later `apply`."""
    resume: Literal["claude-code", "codex", "pi"] | None = None
    """With transcript_path: write the compacted conversation as a new session of this host, next to
    the original file. next_step has the command that continues it."""
    apply: str | None = None
    """A prepared_id: replace the messages that it was prepared for, and no others."""
    summarizer_model: str | None = None
    """Model that writes the summary: one of those that the server's --summarizer-model names."""
    undo: NonNegativeInt | None = None
    """With mode=undo: the number of the compaction to take back, as in
    transcript://SESSION/receipts/NUMBER. By default the newest of the list."""
    restore: str | None = None
    """With mode=undo: the pointer of messages or of an output to put back into the list in full,
    instead of taking a compaction back."""


class PersistArguments(Arguments):
    """Arguments of `persist_large_output`."""

    output: str | None = None
    path: str | None = None
    """Instead: a text file."""
    session_id: str | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    threshold_tokens: NonNegativeInt | None = None
    """Skip smaller texts."""
    preview_chars: Annotated[int, Field(ge=0, le=6_000)] | None = None
    """Default: 2,000."""

    @model_validator(mode="after")
    def _one_source(self) -> "PersistArguments":
        if (self.output is None) == (self.path is None):
            raise ValueError("pass either output or path")
        return self


class ReadArguments(Arguments):
    """Arguments of `read_persisted_output`."""

    output_id: str
    """o_ID (stored output), transcript://S/messages/3-7, transcript://S/files/PATH@7 (file as of
    message 7), transcript://S/plan/2 (work on plan item 2)."""
    start_line: PositiveInt | None = None
    """From 1."""
    offset: NonNegativeInt | None = None
    """In characters, from 0."""
    limit: PositiveInt | None = None
    """Maximum lines; characters with offset; matches with pattern."""
    pattern: str | None = None
    """Only lines matching this text or regex, as grep -n."""
    context: Annotated[int, Field(ge=0, le=50)] | None = None
    """Lines around each match. Default: up to 16."""
    tail: PositiveInt | None = None
    """Only the last lines."""
    json_path: str | None = None
    """$.items[*].id"""
    as_json: bool | None = None
    """Messages as exact JSON lines."""

    @model_validator(mode="after")
    def _one_way(self) -> "ReadArguments":
        ways = (self.offset, self.tail, self.pattern)
        if sum(way is not None for way in ways) > 1:
            raise ValueError("pass at most one of offset, tail and pattern")
        if self.start_line is not None and (self.offset is not None or self.tail is not None):
            raise ValueError("start_line cannot be combined with offset or tail")
        if self.context is not None and self.pattern is None:
            raise ValueError("context needs a pattern")
        return self


class SearchArguments(Arguments):
    """Arguments of `search_transcript`."""

    query: Annotated[str, Field(min_length=1)]
    session_id: str | None = None
    """Only this session and its sub-agents; ID@HEAD: one branch. Default: all sessions."""
    role: Literal["system", "user", "assistant", "tool"] | None = None
    tool: str | None = None
    """Only results of this tool."""
    path: str | None = None
    """Only messages about this file."""
    since: str | None = None
    """ISO 8601 date or time."""
    until: str | None = None
    kind: Literal["words", "phrase", "regex"] = "words"
    """words: any of the words, best match first."""
    order: Literal["relevance", "recent"] = "relevance"
    limit: Annotated[int, Field(ge=1, le=50)] = 10
    cursor: str | None = None
    """The last next_cursor."""


class Reply(BaseModel):
    """Base of every structured reply. Fields that are None are omitted."""

    model_config = ConfigDict(extra="forbid", defer_build=True, use_attribute_docstrings=True)


class PreparedReply(Reply):
    """A stored compaction that a later call can apply."""

    prepared_id: str
    message_count: int
    """Number of leading messages that it replaces."""
    prefix_hash: str
    expires: str


class CompactReply(Reply):
    """Reply of `compact_messages`."""

    session_id: str
    format: str
    status: Status
    changed: bool
    """Whether the result differs from the list that was passed."""
    fits: bool
    """Whether tokens.upper is within tokens.limit (and the size within the byte limit)."""
    tokens: TokenReport
    layers: list[LayerReport] = []
    boundary: Boundary | None = None
    restored: list[str] = []
    irreducible: list[str] = []
    warnings: list[str] = []
    next_step: str | None = None
    message_count: int
    """Number of messages in the result."""
    summary: str | None = None
    draft: str | None = None
    """With mode=plan and a model: the text that it would write, to be passed as summary."""
    written_by: str | None = None
    """Writer of the summary."""
    summary_request: SummaryPrompt | None = None
    prepared: PreparedReply | None = None
    receipt: dict[str, Any] | None = None
    """Rest of the receipt, shortened. Read receipt_pointer for the full receipt."""
    context_pointer: str | None = None
    """Pointer to the compacted context."""
    receipt_pointer: str | None = None
    resume_path: str | None = None
    """Session file that options.resume wrote."""
    messages: list[dict[str, Any]] | None = None
    """The new list, if it changed and the reply is messages."""
    edits: list[Splice] | None = None
    context_hash: str | None = None
    """With reply=edits or new_messages: the value for options.context_hash of the next call."""


class PersistReply(Reply):
    """Reply of `persist_large_output`."""

    persisted: bool
    tokens: int
    size_chars: int
    threshold_tokens: int | None = None
    output_id: str | None = None
    size_bytes: int | None = None
    line_count: int | None = None
    session_id: str | None = None
    marker: str | None = None
    """Text to put into the context instead of the output. It contains a preview."""
    note: str | None = None


class NextMessage(Reply):
    """The message after a hit that ends with a question."""

    pointer: str
    role: str
    snippet: str


class SearchHit(Reply):
    """A match. The pointer of a message names its session."""

    pointer: str
    session_id: str | None = None
    """Session of an output."""
    role: str
    tool_name: str | None = None
    time: str
    line: int | None = None
    offset_chars: int | None = None
    """Position of the match, if the text is shown in part."""
    size_chars: int | None = None
    """Size of a message that is shown in part."""
    snippet: str
    note: str | None = None
    """Remark on the hit, for example the number of hits with equal text."""
    next: NextMessage | None = None
    """The next message, if the hit ends with a question."""


class SearchReply(Reply):
    """Reply of `search_transcript`."""

    hits: list[SearchHit]
    total: int
    total_is_exact: bool
    next_cursor: str | None = None
    note: str | None = None


def parse_arguments(model: type[ArgumentsT], values: Mapping[str, Any]) -> ArgumentsT:
    """Return the validated arguments of a call.

    Raises:
        SettingsError: An argument is unknown, missing, or has a wrong type or value.
    """
    known = list(model.model_fields)
    for name in values:
        if name not in known:
            raise SettingsError(unknown_name("argument", name, known))
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise SettingsError(describe_problems(error)) from error


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the error text for an unknown name, with up to three similar names, else all."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return f"Unknown {kind}: {name!r}. Did you mean {', '.join(near)}?"
    return f"Unknown {kind}: {name!r}. Known: {', '.join(names)}."


def describe_problems(error: ValidationError) -> str:
    """Return the first problems in a validation error as one line: argument, problem, value."""
    problems = error.errors(include_url=False, include_context=False)
    lines = [_describe(cast("Mapping[str, Any]", problem)) for problem in problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"and {len(problems) - _MAX_PROBLEMS} more")
    return "; ".join(lines) + "."


def short_schema(
    model: type[BaseModel], *, without: Collection[str] = frozenset()
) -> dict[str, Any]:
    """Return the JSON schema of a class, without parts that are useless for a language model.

    Omits the description of the class, titles, the alternative and the default null,
    "additionalProperties": true, and the keywords in `without`. A field that may be null may also
    be omitted, so the schema does not need to allow null.
    """
    schema = cast("dict[str, Any]", _shortened(model.model_json_schema(), without))
    schema.pop("description", None)
    return schema


def _describe(problem: Mapping[str, Any]) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "missing":
        return f"{path}: this argument is required"
    message = str(problem["msg"]).removeprefix("Value error, ").removesuffix(".")
    if problem["type"] == "value_error":
        return f"{path}: {message}" if path else message
    value = reprlib.repr(problem["input"])  # because the value may be a whole conversation
    return f"{path or 'arguments'}: {message[:1].lower()}{message[1:]}, but {value} was passed"


def _shortened(node: Any, without: Collection[str]) -> Any:
    if is_list(node):
        return [_shortened(item, without) for item in node]
    if not is_object(node):
        return node
    if "anyOf" in node:
        alternatives = [item for item in node["anyOf"] if item != {"type": "null"}]
        rest = {key: value for key, value in node.items() if key != "anyOf"}
        if len(alternatives) == 1:
            return _shortened({**alternatives[0], **rest}, without)
        node = {**rest, "anyOf": alternatives}
    result: dict[str, Any] = {}
    for key, value in node.items():
        if key == "title" or key in without or (key, value) in _NOISE:
            continue
        if key == "properties":  # These keys are names of arguments, which may be "title".
            result[key] = {name: _shortened(schema, without) for name, schema in value.items()}
        elif key == "description":  # of a docstring, only the first paragraph
            result[key] = " ".join(value.partition("\n\n")[0].split())
        else:
            result[key] = _shortened(value, without)
    return result

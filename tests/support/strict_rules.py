"""Rules of whole requests to the three providers, with the errors that the providers return.

The rules of message lists are in `provider_rules`. This module adds what only a provider knows: the
signatures that it issued, the responses that it stored, credentials, limits and cache breakpoints.
Sources are the providers' documentation and errors that users report; each check quotes its error.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .json_types import Json, is_list, is_object
from .provider_rules import problems

MAX_BODY_BYTES = 32 * 1024 * 1024
# "https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks"
BOUND_MODELS = re.compile(r"claude-(?:(?:fable|mythos)-5-[12]|(?:opus|sonnet|haiku)-5-5)")
_BINDING_BETA = "thinking-binding-controls-2026-08-01"
_MAX_CACHE_BREAKPOINTS = 4
_MIN_THINKING_TOKENS = 1_024
_KEY = b"key of the strict provider"
_FIELDS = {
    "model", "messages", "max_tokens", "system", "tools", "tool_choice", "thinking", "stream",
    "metadata", "temperature", "top_p", "top_k", "stop_sequences", "service_tier", "container",
    "mcp_servers", "context_management", "output_config", "output_format", "betas", "speed",
    "cache_control", "inference_geo", "diagnostics", "fallbacks",
}  # fmt: skip


@dataclass(frozen=True)
class Fails:
    """A response that is an error."""

    status: int
    kind: str
    message: str = "The script says no."
    headers: tuple[tuple[str, str], ...] = ()


@dataclass
class Issued:
    """What a provider remembers of its own answers.

    Attributes:
        thinking_calls: IDs of tool calls in answers that began with thinking.
        reasoning_ids: ID of each Responses item that directly followed a reasoning item, with the
            ID of that reasoning item.
        responses: Stored Responses items by response ID, with the input that they answered.
        bound_models: Models that bind thinking to everything before it.
        window_tokens: Limit for input tokens, at 4 bytes each. 0 is no limit.
    """

    thinking_calls: set[str] = field(default_factory=set[str])
    reasoning_ids: dict[str, str] = field(default_factory=dict[str, str])
    responses: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])
    bound_models: re.Pattern[str] = BOUND_MODELS
    window_tokens: int = 0


def invalid(message: str) -> Fails:
    """Return Anthropic's error for a request that breaks a rule."""
    return Fails(400, "invalid_request_error", message)


def anthropic_refusal(headers: dict[str, str], body: Json, issued: Issued) -> Fails | None:
    """Return the error for a request to Messages; None if it is valid."""
    if not (headers.get("x-api-key") or headers.get("authorization")):
        return Fails(401, "authentication_error", "x-api-key header is required")
    if "anthropic-version" not in headers:
        return invalid("anthropic-version: header is required")
    tokens = len(json.dumps([body.get(key) for key in ("tools", "system", "messages")])) // 4
    if issued.window_tokens and tokens > issued.window_tokens:
        return invalid(f"prompt is too long: {tokens} tokens > {issued.window_tokens} maximum")
    faults = [*_fields(body)]
    if not faults:
        faults = [*problems(body["messages"], "anthropic")]
    if not faults:
        faults = [*_tools(body), *_cache_breakpoints(body), *_thinking(headers, body, issued)]
    return invalid(faults[0]) if faults else None


def _fields(body: Json) -> Iterator[str]:
    for name in ("model", "messages", "max_tokens"):
        if name not in body:
            yield f"{name}: Field required"
    for name in body.keys() - _FIELDS:
        yield f"{name}: Extra inputs are not permitted"
    if not is_list(body.get("messages")):
        yield "messages: Input should be a valid list"


def _tools(body: Json) -> Iterator[str]:
    tools: list[Json] = body.get("tools") or []
    names = [str(tool.get("name")) for tool in tools]
    if len(set(names)) < len(names):
        yield "tools: Tool names must be unique."
    for name in names:
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", name):
            yield f"tools.{name}: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
    blocks = [block for message in body["messages"] for block in blocks_of(message)]
    if not tools and any(block["type"] in {"tool_use", "tool_result"} for block in blocks):
        yield "Requests which include `tool_use` or `tool_result` blocks must define tools"
    for part in (part for block in blocks for part in _nested(block)):
        if part.get("type") == "tool_reference" and part.get("tool_name") not in names:
            yield f"Tool reference '{part.get('tool_name')}' not found in available tools"


def _nested(block: Json) -> list[Json]:
    content = block.get("content")
    return list(filter(is_object, content)) if is_list(content) else []


def _cache_breakpoints(body: Json) -> Iterator[str]:
    """Check number, order and place of the cache breakpoints in the whole request."""
    marked = [block for block in _marked_blocks(body) if "cache_control" in block]
    if len(marked) > _MAX_CACHE_BREAKPOINTS:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {len(marked)}."
    controls: list[Json] = [block["cache_control"] or {} for block in marked]
    ttls = [str(control.get("ttl", "5m")) for control in controls]
    if ttls != sorted(ttls):  # "1h" is before "5m"
        yield "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
    for block in marked:
        if block.get("type") in {"thinking", "redacted_thinking"}:
            yield f"{block['type']}.cache_control: Extra inputs are not permitted"
        if block.get("type") == "text" and not block.get("text"):
            yield "cache_control cannot be set for empty text blocks"


def _marked_blocks(body: Json) -> Iterator[Json]:
    """Return everything that can have a cache breakpoint, in the order of the prompt."""
    yield from body.get("tools") or []
    if is_list(body.get("system")):
        yield from body["system"]
    for message in body["messages"]:
        for block in blocks_of(message):
            yield block
            yield from _nested(block)


def _thinking(headers: dict[str, str], body: Json, issued: Issued) -> Iterator[str]:
    thinking: Json = body.get("thinking") or {}
    if thinking.get("type") == "enabled":
        budget = thinking.get("budget_tokens", 0)
        if budget < _MIN_THINKING_TOKENS:
            yield "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        if budget >= body["max_tokens"]:
            yield "`max_tokens` must be greater than `thinking.budget_tokens`."
        choice: Json = body.get("tool_choice") or {}
        if choice.get("type") in {"any", "tool"}:
            yield "Thinking may not be enabled when tool_choice forces tool use."
        yield from _starts_with_thinking(body["messages"], issued)
    binding: Json = thinking.get("block_binding") or {}
    drops = binding.get("prefix_mismatch_behavior") == "drop_block"
    if drops and _BINDING_BETA not in headers.get("anthropic-beta", ""):
        yield "thinking.block_binding: Extra inputs are not permitted"
    is_bound = bool(issued.bound_models.match(body["model"])) and not drops
    yield from signature_problems(body, is_bound=is_bound)


def _starts_with_thinking(messages: list[Json], issued: Issued) -> Iterator[str]:
    """Check the newest assistant message of a running tool loop.

    An answer of this provider that began without thinking may come back without it.
    """
    index = max(i for i, message in enumerate(messages) if message["role"] != "system")
    last = blocks_of(messages[index])
    assistant = next((i for i in range(index, -1, -1) if messages[i]["role"] == "assistant"), None)
    if assistant is None or not any(block["type"] == "tool_result" for block in last):
        return
    blocks = blocks_of(messages[assistant])
    ids = {block["id"] for block in blocks if block["type"] == "tool_use"}
    first = blocks[0]["type"]
    if first not in {"thinking", "redacted_thinking"} and ids & issued.thinking_calls:
        yield (
            f"messages.{assistant}.content.0.type: Expected `thinking` or `redacted_thinking`, but "
            f"found `{first}`. When `thinking` is enabled, a final `assistant` message must start "
            "with a thinking block"
        )


def signature_problems(body: Json, *, is_bound: bool) -> Iterator[str]:
    """Check that this provider signed each thinking block, and that a bound block is in its place.

    A bound block is valid if `system`, `tools` and all messages before it are unchanged, and if the
    thinking block directly before it is the one that preceded it, or none. Thus the first blocks
    may be left out, but not a block between others.
    """
    before = ""
    for index, place, block, prefix in _prefixes(body):
        if block["type"] != "thinking":
            continue
        where = f"messages.{index}.content.{place}: Invalid `signature` in `thinking` block."
        signed = _opened(block.get("signature"))
        if signed is None or signed["thinking"] != block.get("thinking"):
            yield where
        elif is_bound and (signed["prefix"] != prefix or before not in {"", signed["before"]}):
            yield (
                f"{where} The block is bound to a different conversation. Remove the block, or set "
                '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
            )
        before = str(block.get("signature"))[-16:]


def signature(body: Json, thinking: str) -> str:
    """Return the signature of a thinking block that answers the request."""
    prefixes = [*_prefixes({**body, "messages": [*body["messages"], _ANSWER]})]
    signatures = [str(b.get("signature")) for _, _, b, _ in prefixes if b["type"] == "thinking"]
    before = signatures[-1][-16:] if signatures else ""
    text = json.dumps({"thinking": thinking, "prefix": prefixes[-1][3], "before": before})
    mac = hmac.new(_KEY, text.encode(), hashlib.sha256).hexdigest()
    return f"{text.encode().hex()}.{mac}"


_ANSWER: Json = {"role": "assistant", "content": [{"type": "text", "text": ""}]}


def _opened(signed: Any) -> Json | None:
    text, _, mac = str(signed).partition(".")
    try:
        content = bytes.fromhex(text)
    except ValueError:
        return None
    valid = hmac.new(_KEY, content, hashlib.sha256).hexdigest()
    return json.loads(content) if hmac.compare_digest(mac, valid) else None


def _prefixes(body: Json) -> Iterator[tuple[int, int, Json, str]]:
    """Return each block of the messages with the hash of everything before it.

    Cache breakpoints and thinking do not count. Consecutive messages of the user are one turn.
    """
    digest = hashlib.sha256()
    digest.update(json.dumps([unmarked(body.get(key)) for key in ("system", "tools")]).encode())
    role = ""
    for index, message in enumerate(body["messages"]):
        if message["role"] != role:
            role = message["role"]
            digest.update(role.encode())
        for place, block in enumerate(blocks_of(message)):
            yield index, place, block, digest.hexdigest()
            if block["type"] not in {"thinking", "redacted_thinking"}:
                digest.update(json.dumps(unmarked(block), sort_keys=True).encode())


def blocks_of(message: Json) -> list[Json]:
    """Return the content of an Anthropic message as blocks."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def unmarked(value: Any) -> Any:
    """Return a copy of a request's part without cache breakpoints."""
    if is_list(value):
        return [unmarked(item) for item in value]
    if is_object(value):
        return {key: unmarked(item) for key, item in value.items() if key != "cache_control"}
    return value


def _openai_error(message: str, code: str = "") -> Fails:
    return Fails(400, code or "invalid_request_error", message)


def responses_refusal(headers: dict[str, str], body: Json, issued: Issued) -> Fails | None:
    """Return the error for a request to Responses; None if it is valid."""
    if not headers.get("authorization"):
        return Fails(401, "invalid_request_error", "Missing bearer authentication in header")
    if "model" not in body:
        return _openai_error("Missing required parameter: 'model'.")
    previous = body.get("previous_response_id")
    if previous and previous not in issued.responses:
        return _openai_error(
            f"Previous response with id '{previous}' not found.", "previous_response_not_found"
        )
    items = response_items(body, issued)
    tokens = len(json.dumps([body.get("tools"), body.get("instructions"), items])) // 4
    if issued.window_tokens and tokens > issued.window_tokens:
        message = "Your input exceeds the context window of this model."
        return _openai_error(message, "context_length_exceeded")
    faults = [*problems(items, "openai-responses"), *_required_reasoning(items, issued)]
    if faults:
        return _openai_error(faults[0])
    return _encrypted(body, items)


def response_items(body: Json, issued: Issued) -> list[Json]:
    """Return all items that the model reads: those of the previous response and the new ones."""
    given: Any = body.get("input") or []
    new: list[Json] = [{"role": "user", "content": given}] if isinstance(given, str) else given
    return [*issued.responses.get(body.get("previous_response_id") or "", []), *new]


def _required_reasoning(items: list[Json], issued: Issued) -> Iterator[str]:
    before: Json = {}
    for item in items:
        required = issued.reasoning_ids.get(str(item.get("id")))
        if required and before.get("id") != required and before.get("type") != "reasoning":
            yield (
                f"Item '{item['id']}' of type '{item.get('type', 'message')}' was provided without "
                f"its required 'reasoning' item: '{required}'."
            )
        before = item


def encrypted(words: str) -> str:
    """Return the encrypted content of a reasoning item."""
    mac = hmac.new(_KEY, words.encode(), hashlib.sha256).hexdigest()
    return f"gAAAA{words.encode().hex()}.{mac}"


def _encrypted(body: Json, items: list[Json]) -> Fails | None:
    for item in items:
        if item.get("type") != "reasoning":
            continue
        content = item.get("encrypted_content")
        if content is None and body.get("store") is False:
            return _openai_error(
                f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` "
                "is set to false. Try again with `store` set to true, or remove this item."
            )
        if content is not None:
            text = str(content).removeprefix("gAAAA").partition(".")[0]
            try:
                words = bytes.fromhex(text).decode()
            except ValueError:
                words = ""
            if content != encrypted(words):
                shown = f"{str(content)[:4]}...{str(content)[-4:]}"
                message = f"The encrypted content {shown} could not be verified."
                return _openai_error(message, "invalid_encrypted_content")
    return None


def chat_refusal(headers: dict[str, str], body: Json, issued: Issued) -> Fails | None:
    """Return the error for a request to Chat Completions; None if it is valid."""
    if not headers.get("authorization"):
        return Fails(401, "invalid_request_error", "You didn't provide an API key.")
    for name in ("model", "messages"):
        if name not in body:
            return _openai_error(f"Missing required parameter: '{name}'.")
    tokens = len(json.dumps([body.get("tools"), body["messages"]])) // 4
    if issued.window_tokens and tokens > issued.window_tokens:
        message = f"This model's maximum context length is {issued.window_tokens} tokens."
        return _openai_error(message, "context_length_exceeded")
    faults = problems(body["messages"], "openai-chat")
    return _openai_error(faults[0]) if faults else None

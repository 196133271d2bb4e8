"""Rules of Anthropic's Messages API, independent of the product's rules."""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from .json_types import Json, is_list, is_object

_THINKING = ("thinking", "redacted_thinking")
_MAX_CACHE_BREAKPOINTS = 4
_TOOL_USE_ID = re.compile(r"[a-zA-Z0-9_-]+")


def anthropic_problems(payload: list[Json], original: list[Json] | None) -> list[str]:
    """Return the problems of a list; see `provider_rules.problems`."""
    shape_problems = [*_shapes(payload)]
    if shape_problems:
        return shape_problems  # The other checks need roles and blocks.
    return [
        *_roles(payload, original),
        *_texts(payload),
        *_pairs(payload, original),
        *_ids(payload, original),
        *_server_results(payload),
        *_thinking(payload, original),
        *_cache_breakpoints(payload),
    ]


def _shapes(payload: list[Json]) -> Iterator[str]:
    for index, message in enumerate(payload):
        # "messages.0.role: Input should be 'user' or 'assistant'" (and 'system' since Opus 4.8)
        if message.get("role") not in {"user", "assistant", "system"}:
            yield f"message {index}: unknown role {message.get('role')!r}"
        content = message.get("content")
        if isinstance(content, str):
            continue
        if not is_list(content):
            yield f"message {index}: content is neither text nor a list"
            continue
        for block in content:
            if not is_object(block) or not isinstance(block.get("type"), str):
                yield f"message {index}: a block without a type"
            else:
                yield from _block_shape(index, message["role"], block)


def _block_shape(index: int, role: str, block: Json) -> Iterator[str]:
    kind = block["type"]
    if kind == "text" and not isinstance(block.get("text"), str):
        yield f"message {index}: a text block without text"
    if kind == "tool_use":
        if role != "assistant":
            yield f"message {index}: a tool_use block in a message of role {role}"
        # "messages.1.content.0.tool_use.input: Input should be a valid dictionary"
        if not isinstance(block.get("input"), dict):
            yield f"message {index}: tool_use input is not an object"
        if not isinstance(block.get("id"), str) or not block.get("name"):
            yield f"message {index}: tool_use without id or name"
    if kind == "tool_result":
        yield from _result_shape(index, role, block)
    if kind in _THINKING and role != "assistant":
        yield f"message {index}: a {kind} block in a message of role {role}"


def _result_shape(index: int, role: str, block: Json) -> Iterator[str]:
    if role != "user":
        yield f"message {index}: a tool_result block in a message of role {role}"
    if not isinstance(block.get("tool_use_id"), str):
        yield f"message {index}: tool_result without tool_use_id"
    if not isinstance(block.get("content", ""), str | list):
        yield f"message {index}: tool_result content is neither text nor a list"


def _roles(payload: list[Json], original: list[Json] | None) -> Iterator[str]:
    """Check that the first message is the user's, and the positions of system messages.

    Since Opus 4.8 a system message is allowed after a user message, at the end or before an
    assistant message, but not first and not after another. `[user, system, user]` was measured to
    be refused (pydantic-ai #6765). Adapters hoist leading system messages, so these pass if the
    original starts with a system message too.
    """
    roles = [message["role"] for message in payload]
    leading = 0
    if original and original[0].get("role") == "system":
        leading = next((i for i, role in enumerate(roles) if role != "system"), len(roles))
    # "messages: first message must use the "user" role"
    if roles[leading:] and roles[leading] == "assistant":
        yield f"message {leading}: the first message is the assistant's"
    for index in range(leading, len(roles)):
        if roles[index] == "system":
            after = roles[index + 1] if index + 1 < len(roles) else "assistant"
            # "messages.N: role 'system' must follow a 'user' message ..."
            if index == 0 or roles[index - 1] != "user" or after != "assistant":
                yield f"message {index}: a system message where none is allowed"


def _texts(payload: list[Json]) -> Iterator[str]:
    """Check for empty content and for text without a visible character.

    Text in tool results may be empty (measured: experiential #804). Newer models accept some blank
    blocks next to other blocks, and empty assistant messages, but this check does not.
    """
    for index, message in enumerate(payload):
        is_final_assistant = index == len(payload) - 1 and message["role"] == "assistant"
        # "all messages must have non-empty content except for the optional final assistant message"
        if not message["content"]:
            if not is_final_assistant:
                yield f"message {index}: empty content"
            continue
        # "messages: text content blocks must be non-empty", "... must contain non-whitespace text"
        if any(not text.strip() for text in _block_texts(message)):
            yield f"message {index}: a text block without a visible character"
    last = payload[-1]
    if last["role"] == "assistant" and last["content"]:
        block = _blocks(last)[-1]
        # "messages: final assistant content cannot end with trailing whitespace"
        if block["type"] == "text" and block["text"] != block["text"].rstrip():
            yield "the final assistant message ends in whitespace"


def _pairs(payload: list[Json], original: list[Json] | None) -> Iterator[str]:
    """Check that every call is answered in the next message, and only there.

    Consecutive user messages are one turn for the API. Two assistant messages with calls that were
    answered together in the next user message were refused (oh-my-pi #1163). A system message may
    not be between call and result (see `_roles`).
    """
    turns = _turns(payload)
    may_be_open = set(_open_at_end(_turns(original))) if original else set[str]()
    for position, (role, blocks) in enumerate(turns):
        before = turns[position - 1] if position else ("", list[Json]())
        calls = _calls(before[1])
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        # "unexpected `tool_use_id` found in `tool_result` blocks: X. Each `tool_result` block must
        # have a corresponding `tool_use` block in the previous message."
        yield from (f"result {result} answers no call before it" for result in set(results) - calls)
        # "`tool_use` ids were found without `tool_result` blocks immediately after: X."
        yield from (f"call {call} has no result after it" for call in calls - set(results))
        # "each tool_use must have a single result. Found multiple `tool_result` blocks with id: X"
        yield from (f"call {call} has {n} results" for call, n in Counter(results).items() if n > 1)
        # The API gives the same error if text precedes the results (hermes-agent #65369).
        kinds = [block["type"] == "tool_result" for block in blocks]
        if role == "user" and kinds != sorted(kinds, reverse=True):
            yield f"turn {position}: results follow other content"
    for call in _open_at_end(turns):
        if call not in may_be_open:
            yield f"call {call} at the end has no result"


def _ids(payload: list[Json], original: list[Json] | None) -> Iterator[str]:
    known = {block["id"] for block in _all_blocks(original or []) if block.get("id")}
    ids = [block["id"] for block in _all_blocks(payload) if block["type"] == "tool_use"]
    # "messages.1.content.1: `tool_use` ids must be unique"
    yield from (f"call id {id_} is used {n} times" for id_, n in Counter(ids).items() if n > 1)
    for id_ in ids:
        # "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'". IDs of the host are not
        # checked.
        if id_ not in known and not _TOOL_USE_ID.fullmatch(id_):
            yield f"call id {id_!r} has characters that are not allowed"


def _server_results(payload: list[Json]) -> Iterator[str]:
    """Check that each call of a server tool has a result in its turn, and each result a call.

    The result is usually in the same message. If the assistant also calls a tool of the client, the
    server answers after the client. A request of the user ends the turn.
    """
    seen = set[str]()
    open_calls = set[str]()
    for message in payload:
        blocks = _blocks(message)
        kinds = {block["type"] for block in blocks}
        if message["role"] == "user" and "tool_result" not in kinds:
            # "`web_search` tool use with id X was found without a corresponding
            # `web_search_tool_result` block" (pydantic-ai #2600)
            yield from (f"server call {call} has no result" for call in sorted(open_calls))
            open_calls.clear()
        for block in blocks:
            kind = block["type"]
            if kind in {"server_tool_use", "mcp_tool_use"}:
                seen.add(block.get("id", ""))
                open_calls.add(block.get("id", ""))
            # "Each `advisor_tool_result` block must have a corresponding `server_tool_use` block
            # before it."
            elif kind.endswith("_tool_result"):
                open_calls.discard(block.get("tool_use_id", ""))
                if block.get("tool_use_id") not in seen:
                    yield f"{kind} {block.get('tool_use_id')} has no call before it"


def _thinking(payload: list[Json], original: list[Json] | None) -> Iterator[str]:
    """Check that no thinking block follows the first difference from the original.

    "Invalid `signature` in `thinking` block. The block is bound to a different conversation." The
    API also gives this error if an earlier thinking block is missing (KiroCrew #11513), and
    "`thinking` ... blocks in the latest assistant message cannot be modified". Cache breakpoints
    may move.
    """
    if original is None:
        return
    before, after = _flat(original), _flat(payload)
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    for place, (index, _, block) in enumerate(after):
        if place >= same and block["type"] in _THINKING:
            yield f"message {index}: a thinking block after something that was changed"


def _cache_breakpoints(payload: list[Json]) -> Iterator[str]:
    # "A maximum of 4 blocks with cache_control may be provided. Found 5."
    count = sum("cache_control" in block for block in _all_blocks(payload))
    if count > _MAX_CACHE_BREAKPOINTS:
        yield f"{count} blocks with cache_control"


def _blocks(message: Json) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _all_blocks(payload: list[Json]) -> Iterator[Json]:
    for message in payload:
        yield from _blocks(message)


def _block_texts(message: Json) -> list[str]:
    return [block["text"] for block in _blocks(message) if block["type"] == "text"]


def _calls(blocks: list[Json]) -> set[str]:
    return {block["id"] for block in blocks if block["type"] == "tool_use"}


def _turns(payload: list[Json]) -> list[tuple[str, list[Json]]]:
    """Return role and blocks of each turn, with consecutive user messages joined."""
    turns = list[tuple[str, list[Json]]]()
    for role, group in groupby(payload, key=lambda message: message["role"]):
        messages = [_blocks(message) for message in group]
        if role == "user":
            turns.append((role, [block for blocks in messages for block in blocks]))
        else:
            turns += [(role, blocks) for blocks in messages]
    return turns


def _open_at_end(turns: list[tuple[str, list[Json]]]) -> list[str]:
    return sorted(_calls(turns[-1][1])) if turns else []


def _flat(payload: list[Json]) -> list[tuple[int, str, Json]]:
    """Return each block without its cache breakpoint, after its message's position and role."""
    return [
        (index, message["role"], {k: v for k, v in block.items() if k != "cache_control"})
        for index, message in enumerate(payload)
        for block in _blocks(message)
    ]

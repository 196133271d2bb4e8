"""Small conversations for the tables of the papers, counted by characters / 4."""

import hashlib
from typing import Any

from context_compaction.result import CompactResult

from .json_types import Json
from .small import answered, assistant, compacted, user

# The papers count only characters / 4; this library adds the frames of list and messages.
CHARS4: Json = {"estimator": "chars/4"}
LIST_TOKENS, MESSAGE_TOKENS = 10, 4


def chars(tokens: int, letter: str = "x") -> str:
    """Return a text of this many tokens by characters / 4."""
    return letter * (4 * tokens)


def archived_marker(text: str) -> str:
    """Return the last part of a placeholder: the size of the archived text and its pointer."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:24]
    return f"[archived: {len(text)} chars; read_persisted_output o_{digest}]"


def steps(results: list[str], name: str = "bash", **arguments: Any) -> list[Json]:
    """Return a request, and one call for each result."""
    messages = [user("Go on.")]
    for number, text in enumerate(results):
        messages += answered(f"c{number}", name, text, **{"command": f"run {number}", **arguments})
    return messages


def results_of(messages: list[Json]) -> list[Any]:
    """Return the content of each tool result, in order."""
    found: list[Any] = []
    for message in messages:
        content: Any = message["content"]
        if not isinstance(content, str):
            found += [block["content"] for block in content if block["type"] == "tool_result"]
    return found


def long_talk(tokens: int) -> list[Json]:
    """Return a finished turn and a new request, with exactly `tokens` tokens together."""
    frames = LIST_TOKENS + 3 * MESSAGE_TOKENS
    answer, request = "Done as asked.", "Now the next thing, please."
    request_tokens = tokens - frames - len(answer) // 4 - len(request) // 4
    return [user(chars(request_tokens)), assistant(answer), user(request)]


async def under(policy: str, payload: list[Json], **options: Any) -> CompactResult:
    """Compact `payload` under a policy, counted by characters / 4."""
    settings = {**CHARS4, **options.pop("settings", {})}
    return await compacted(payload, policy=policy, settings=settings, **options)


# 0.9 of 10 000 is the trigger: 2 048 of them are all that a small window keeps for the answer.
WINDOW = {"context_window": 10_000, "max_output_tokens": 1_000}
SHORT = {"summary_tokens": 300}


async def timeline(payload: list[Json], **options: Any) -> CompactResult:
    """Compact `payload` under the policy timeline, in a small window, with short summaries."""
    settings = {**SHORT, **options.pop("settings", {})}
    return await under("timeline", payload, settings=settings, **{**WINDOW, **options})


def shape(messages: list[Json]) -> list[str]:
    """Return the role of each message, with the kind of messages that this library wrote."""
    return [_kind(message) for message in messages]


def _kind(message: Json) -> str:
    content: Any = message["content"]
    text = content if isinstance(content, str) else content[0].get("text", "")
    for start, kind in (
        ("<context_summary ", "summary"),
        ("<turn_context ", "checkpoint"),
        ("<restored_files>", "files"),
        ("[Messages removed: ", "snipped"),
        ("I have read the summary", "acknowledgement"),
    ):
        if text.startswith(start):
            return kind
    types: set[str] = set() if isinstance(content, str) else {block["type"] for block in content}
    if "tool_result" in types:
        return "result"
    if "tool_use" in types:
        return "call"
    return str(message["role"])

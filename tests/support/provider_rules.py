"""Independent check of whether a provider would accept a message list.

This module imports no code of the product and was written without reading it. Its rules come from
the providers' documentation and from errors that users report. Each check quotes its error if it is
known. Unknown block types, item types and fields are accepted.
"""

import json
from collections.abc import Callable

from .json_types import Json, is_object
from .rules_anthropic import anthropic_problems
from .rules_bedrock import converse_problems
from .rules_gemini import gemini_problems
from .rules_openai import chat_problems, pi_problems, responses_problems

_JUDGES: dict[str, Callable[[list[Json], list[Json] | None], list[str]]] = {
    "anthropic": anthropic_problems,
    "openai-chat": chat_problems,
    "openai-responses": responses_problems,
    "gemini": gemini_problems,
    "pi": pi_problems,
    "bedrock-converse": converse_problems,
}


def problems(payload: list[Json], format: str, *, original: list[Json] | None = None) -> list[str]:
    """Return a sentence for each fault that the provider would refuse; empty for a valid list.

    Args:
        payload: Raw messages (items, contents) as they would be sent.
        format: The name of their format.
        original: The list before its compaction. It allows two more checks: whether a signed
            thinking block still follows its original content, and whether open calls at the end
            were open before. Without it, an open call is a problem.
    """
    if not payload:
        # Anthropic: "messages: at least one message is required"; OpenAI: "[] is too short".
        return [] if original == [] else ["the list is empty"]
    return _not_json(payload) or _JUDGES[format](payload, original)


def _not_json(payload: list[Json]) -> list[str]:
    """Return the reason why the list is no plain JSON; empty if it can be sent."""
    try:
        text = json.dumps(payload, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return [f"the list is not JSON: {error}"]
    if json.loads(text) != payload:
        return ["the list changes when it is written as JSON and read again"]
    if not all(is_object(message) for message in payload):
        return ["a message is not an object"]
    return []

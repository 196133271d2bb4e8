"""An independent judge: would the provider accept this list?

Nothing of the product is imported here, and none of its code was read while this was written. The
rules come from the providers' documentation and from the errors that users report; each check
quotes its error where one is known. Unknown block types, item types and fields are accepted.
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
    """What the provider would refuse in `payload`, one sentence each; empty if it would accept.

    Args:
        payload: Raw messages (items, contents) as they would be sent.
        format: The name of its format.
        original: The list before it was compacted. With it, two more things are judged: whether
            a signed thinking block still follows what it was signed with, and whether calls left
            open at the end were open there before. Without it, an open call is a problem.
    """
    if not payload:
        # Anthropic: "messages: at least one message is required"; OpenAI: "[] is too short".
        return [] if original == [] else ["the list is empty"]
    return _not_json(payload) or _JUDGES[format](payload, original)


def _not_json(payload: list[Json]) -> list[str]:
    """Whether the list can be sent at all: plain JSON objects, no NaN, string keys."""
    try:
        text = json.dumps(payload, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return [f"the list is not JSON: {error}"]
    if json.loads(text) != payload:
        return ["the list changes when it is written as JSON and read again"]
    if not all(is_object(message) for message in payload):
        return ["a message is not an object"]
    return []

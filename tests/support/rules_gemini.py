"""Rules of Gemini's generateContent, independent of the product's rules."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from .json_types import Json, is_list, is_object


def gemini_problems(payload: list[Json], original: list[Json] | None) -> list[str]:
    """Return the problems of a list; see `provider_rules.problems`."""
    shape_problems = [*_shapes(payload)]
    if shape_problems:
        return shape_problems
    return [*_order(payload, original), *_signatures(payload, original)]


def _shapes(payload: list[Json]) -> Iterator[str]:
    for index, content in enumerate(payload):
        # "Please use a valid role: user, model."
        if content.get("role") not in {"user", "model", "function"}:
            yield f"content {index}: unknown role {content.get('role')!r}"
        parts = content.get("parts")
        # "Unable to submit request because it must include at least one parts field";
        # "contents.parts must not be empty"
        if not is_list(parts) or not parts:
            yield f"content {index}: no parts"
            continue
        for part in parts:
            yield from _part_shape(index, content.get("role"), part)


def _part_shape(index: int, role: Any, part: Any) -> Iterator[str]:
    if not is_object(part):
        yield f"content {index}: a part is not an object"
        return
    # "contents[1].parts[0].data: required oneof field 'data' must have one initialized field"; and
    # "Unable to submit request because it has an empty text parameter". A signature may be in
    # an empty text.
    holds_more = set(part) - {"thought", "thoughtSignature", "text"}
    if not holds_more and not part.get("text") and not part.get("thoughtSignature"):
        yield f"content {index}: an empty part"
    if "functionCall" in part:
        if role != "model":
            yield f"content {index}: functionCall in a content of role {role}"
        if not isinstance(part["functionCall"].get("args", {}), dict):
            yield f"content {index}: functionCall args are not an object"
    if "functionResponse" in part:
        if role == "model":
            yield f"content {index}: functionResponse in a content of role model"
        if not isinstance(part["functionResponse"].get("response"), dict):
            yield f"content {index}: functionResponse response is not an object"


def _order(payload: list[Json], original: list[Json] | None) -> Iterator[str]:
    # "Please ensure that multiturn requests start with a user turn"
    if payload[0]["role"] == "model":
        yield "content 0: the first content is the model's"
    may_be_open = _names(original[-1], "functionCall") if original else Counter[str]()
    before: Json = {}
    for index, content in enumerate(payload):
        calls, responses = _names(before, "functionCall"), _names(content, "functionResponse")
        # "Please ensure that function response turn comes immediately after a function call turn"
        # and "... the number of function response parts is equal to the number of function call
        # parts of the function call turn."
        if calls != responses:
            yield f"content {index}: {responses.total()} responses to {calls.total()} calls"
        # "Please ensure that function call turn comes immediately after a user turn or after a
        # function response turn."
        if _names(content, "functionCall") and before.get("role") == "model":
            yield f"content {index}: a function call turn after a turn of the model"
        before = content
    open_calls = _names(before, "functionCall")
    if open_calls and open_calls != may_be_open:
        yield f"content {len(payload) - 1}: the last calls have no responses"


def _signatures(payload: list[Json], original: list[Json] | None) -> Iterator[str]:
    """Check that calls in the current turn keep their signatures (Gemini 3).

    "Function call is missing a thought_signature in functionCall parts." The API does not check
    older turns.
    """
    before, after = [*_current_turn(original or [])], [*_current_turn(payload)]
    for part in before:
        # Only the first of parallel calls is signed, so an equal call may have no signature.
        if "functionCall" in part and "thoughtSignature" in part and part not in after:
            call = part["functionCall"]
            if _unsigned(after, call) > _unsigned(before, call):
                yield f"call {call.get('name')} of this turn lost its signature"


def _unsigned(parts: list[Json], call: Json) -> int:
    """Return how many of `parts` are this call without a signature."""
    return sum(
        part.get("functionCall") == call and "thoughtSignature" not in part for part in parts
    )


def _current_turn(payload: list[Json]) -> Iterator[Json]:
    """Yield the parts after the last content with a text of the user."""
    for content in reversed(payload):
        parts = content["parts"]
        if content.get("role") != "model" and any("functionResponse" not in part for part in parts):
            return
        yield from parts


def _names(content: Json, kind: str) -> Counter[str]:
    return Counter(str(part[kind].get("name")) for part in content.get("parts", []) if kind in part)

"""Make lines fit a number of tokens."""

from collections.abc import Iterable, Sequence

from context_compaction.messages import placeholders
from context_compaction.summarizers.instructions.typed_text import LEFT_OUT
from context_compaction.tokens.counter import MessageCounter

_MIN_TOKENS = 12


def within(lines: Iterable[str], tokens: int, count: MessageCounter) -> list[str]:
    """Of `lines` those that fit, most wanted first; a first one that is too long is shortened."""
    chosen: list[str] = []
    left = tokens
    for line in lines:
        cost = count.text(line) + 1
        if cost <= left:
            chosen.append(line)
            left -= cost
        elif not chosen and (shorter := shortened(line, left - 2, count)):
            return [shorter]
        if left < 8:
            break
    return chosen


def shortened(text: str, tokens: int, count: MessageCounter) -> str:
    """`text`, or its beginning and end where it is too long; empty where even that is too much.

    It is never cut inside a mark of ours.
    """
    total_tokens = count.text(text)
    if total_tokens <= tokens:
        return text
    if tokens < _MIN_TOKENS:
        return ""
    chars = max(8, len(text) * tokens // (total_tokens + 1) * 9 // 10)
    head = text[: chars * 2 // 3]
    tail = text[len(text) - chars // 3 :]
    if placeholders.cuts_mark(text, len(head)) or placeholders.cuts_mark(
        text, len(text) - len(tail)
    ):
        return ""
    return f"{_to_last_space(head)} {LEFT_OUT} {_from_first_space(tail)}"


def head_of(text: str, chars: int) -> str:
    """`text`, or its beginning of about `chars` where it is longer; no word of it is cut."""
    if len(text) <= chars:
        return text
    return f"{_to_last_space(text[: chars + 1])[:chars]} {LEFT_OUT}"


def cost_of(lines: Sequence[str], count: MessageCounter) -> int:
    """Tokens of `lines`, each with its line break."""
    return sum(count.text(line) + 1 for line in lines)


def _to_last_space(text: str) -> str:
    at = text.rfind(" ")
    return text[:at] if at > len(text) // 2 else text


def _from_first_space(text: str) -> str:
    at = text.find(" ")
    return text[at + 1 :] if 0 <= at < len(text) // 2 else text

"""The user's requests in their own words: the first, the newest, then as many as fit."""

from context_compaction.messages import Messages
from context_compaction.speakers import user_text
from context_compaction.summarizers.binding import Bindings
from context_compaction.summarizers.prose import sentences_of
from context_compaction.summarizers.shortening import shortened
from context_compaction.tokens import MessageCounter

GONE = "[replaced later]"
# Beyond the first and the newest a request is only quoted where it is short: the rest of what it
# says is found by what binds and by the facts.
_SHORT_TOKENS = 60


def request_lines(
    messages: Messages, budget: int, count: MessageCounter, bindings: Bindings
) -> list[str]:
    """Requests in their order, within `budget` tokens; replaced sentences are marked as such."""
    texts = [(at, _current(user_text(message), bindings)) for at, message in enumerate(messages)]
    texts = [(at, text) for at, text in texts if text]
    if not texts:
        return []
    chosen: dict[int, str] = {}
    left = budget

    def take(at: int, text: str, tokens: int) -> None:
        nonlocal left
        shown = shortened(text, tokens, count)
        if shown:
            chosen[at] = f"- {shown}"
            left -= count.text(chosen[at]) + 1

    first, *others = texts
    take(*first, left // 2 if others else left)
    if others:
        take(*others[-1], left)
    for at, text in reversed(others[:-1]):
        if left < _SHORT_TOKENS // 2:
            break
        if count.text(text) <= min(left, _SHORT_TOKENS):
            take(at, text, left)
    return [chosen[at] for at in sorted(chosen)]


def _current(text: str, bindings: Bindings) -> str:
    flat = " ".join(text.split())
    for said in dict.fromkeys(sentence.text for sentence in sentences_of(text)):
        if said in bindings.superseded:
            flat = flat.replace(said, GONE)
        elif said in bindings.earlier:
            flat = flat.replace(said, bindings.shown(said))
    return flat

"""The user's requests in their own words: the first, the newest, then as many as fit."""

from collections.abc import Collection
from typing import NamedTuple

from context_compaction.messages.model import Messages
from context_compaction.messages.speakers import user_text
from context_compaction.summarizers.extractive.fit import shortened
from context_compaction.summarizers.instructions.find import UserInstructions
from context_compaction.summarizers.instructions.typed_text import LEFT_OUT, sentences_of
from context_compaction.tokens.counter import MessageCounter

# Beyond the first and the newest a request is only quoted where it is short: the rest of what it
# says is found by what binds and by the facts.
_SHORT_TOKENS = 60


class Requests(NamedTuple):
    """Lines of requests in their order, and the sentences that stand in them whole."""

    lines: list[str]
    sentences: frozenset[str]


def request_lines(
    messages: Messages,
    budget: int,
    count: MessageCounter,
    bindings: UserInstructions,
    pinned: Collection[str],
) -> Requests:
    """Requests within `budget` tokens.

    Args:
        messages: The conversation.
        budget: Tokens for all of them.
        count: The token counter.
        bindings: Which of their sentences no longer hold, and which are marked.
        pinned: Sentences that stand in the same summary already.
    """
    texts = [
        (at, _current(user_text(message), bindings, pinned)) for at, message in enumerate(messages)
    ]
    last_at = {text: at for at, text in texts}  # said again: it counts as said last
    texts = [(at, text) for at, text in texts if text and last_at[text] == at]
    if not texts:
        return Requests([], frozenset())
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
    told = (
        sentence.text
        for at, line in chosen.items()
        for sentence in sentences_of(user_text(messages[at]))
        if bindings.shown(sentence.text) in line
    )
    return Requests([chosen[at] for at in sorted(chosen)], frozenset(told))


def _current(text: str, bindings: UserInstructions, pinned: Collection[str]) -> str:
    """`text` on one line, with the marks of its sentences, without what is pinned or replaced."""
    flat = " ".join(text.split())
    sentences = [sentence.text for sentence in sentences_of(text)]
    gone = [said in pinned or said in bindings.superseded for said in sentences]
    if sentences and all(gone):
        return ""
    shown = ""
    start = 0
    for said, is_gone in zip(sentences, gone, strict=True):
        at = flat.find(said, start)
        if at < 0:  # it was cut
            continue
        shown += flat[start:at]
        if not is_gone:
            shown += bindings.shown(said)
        elif not shown.rstrip().endswith(LEFT_OUT):
            shown += LEFT_OUT
        start = at + len(said)
    return (shown + flat[start:]).strip()

"""Judge which strings an agent needs after a cut, and whether a text still has them.

A string is needed if the agent itself writes it in the messages after the cut, it occurred before
the cut, and nothing showed it again first. It counts as kept only with its surroundings: two
ordinary words that were near it before the cut must be within 160 characters of it. So a bare list
of names is worth nothing. The judge uses no code of the product except its reader of formats.
"""

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from context_compaction.messages.model import Messages, Text, ToolCall, ToolResult

CONTEXT_CHARS = 160
CONTEXT_WORDS = 2
# A word in more than this share of the conversations is an ordinary word.
ORDINARY_SHARE = 0.05

_TOKEN = re.compile(r"[^\W_][\w./:@#-]{2,}\w")
_WORD = re.compile(r"(?<![^\s\"'(\[{])[A-Za-z][a-z]{2,}(?![^\s\"'.,;:!?)\]}]|[.:]\w)")
# Paths, file names, identifiers with several parts, codes, long numbers, addresses.
_ENTITY = re.compile(
    r".*/.+|.+\.[a-z]{1,4}|.*[a-z][A-Z].*|.+[_@#].+|.*\d{3,}.*|[A-Z]{2,}[A-Z0-9_-]{2,}|.*[A-Z]+\d+.*"
)

Definition = Callable[[str], bool]


def texts_of(messages: Messages, *, agent_only: bool = False) -> Iterator[str]:
    """Yield the texts, tool calls and text results of `messages`.

    Args:
        messages: Messages to read.
        agent_only: Omit the user's texts and the tool results.
    """
    for message in messages:
        for block in message.blocks:
            match block:
                case Text() if message.role == "assistant" or not agent_only:
                    yield block.text
                case ToolCall():
                    yield call_text(block)
                case ToolResult() if not agent_only:
                    yield from (part.text for part in block.content if isinstance(part, Text))
                case _:
                    continue


def call_text(call: ToolCall) -> str:
    """Render a tool call as one text in which string arguments keep their lines."""
    arguments: Any = call.arguments
    if not isinstance(arguments, dict):
        return f"{call.name}({arguments})"
    fields = (
        f"{key}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for key, value in arguments.items()  # pyright: ignore[reportUnknownVariableType]
    )
    return f"{call.name}({', '.join(fields)})"


def tokens_of(text: str) -> Iterator[re.Match[str]]:
    """Find words, numbers, paths and identifiers of at least four characters."""
    return _TOKEN.finditer(text)


def ordinary_words(conversations: Iterable[str]) -> frozenset[str]:
    """Return the lower-case words that occur in many conversations."""
    occurrences: Counter[str] = Counter()
    total = 0
    for text in conversations:
        total += 1
        words = {match[0].lower() for match in _TOKEN.finditer(text)}
        occurrences.update(words | {match[0].lower() for match in _WORD.finditer(text)})
    return frozenset(word for word, n in occurrences.items() if n > total * ORDINARY_SHARE)


@dataclass(frozen=True, slots=True)
class TextIndex:
    """Positions of the tokens and ordinary words of a text.

    Attributes:
        text: The text.
        token_positions: Character offsets of each token.
        word_positions: Character offsets of the ordinary words, ascending.
        words: Lower-case ordinary words, parallel to `word_positions`.
    """

    text: str
    token_positions: dict[str, list[int]]
    word_positions: list[int]
    words: list[str]

    def words_near(self, token: str) -> set[str]:
        """Return the ordinary words near any occurrence of `token`."""
        words: set[str] = set()
        for position in self.token_positions.get(token, ()):
            words.update(self.words_around(position, len(token)))
        return words

    def words_around(self, position: int, chars: int) -> list[str]:
        """Return the ordinary words within `CONTEXT_CHARS` of `chars` characters at `position`."""
        start = bisect_left(self.word_positions, position - CONTEXT_CHARS)
        stop = bisect_left(self.word_positions, position + chars + CONTEXT_CHARS)
        return self.words[start:stop]


def index_text(text: str, ordinary: frozenset[str]) -> TextIndex:
    """Index the tokens and the `ordinary` words of `text`."""
    token_positions: dict[str, list[int]] = {}
    for match in tokens_of(text):
        token_positions.setdefault(match[0], []).append(match.start())
    word_positions: list[int] = []
    words: list[str] = []
    for match in _WORD.finditer(text):
        word = match[0].lower()
        if word in ordinary:
            word_positions.append(match.start())
            words.append(word)
    return TextIndex(text, token_positions, word_positions, words)


def is_entity(token: str) -> bool:
    """Whether `token` has the shape of a name."""
    return _ENTITY.fullmatch(token) is not None


def is_rare(ordinary: frozenset[str]) -> Definition:
    """Return a predicate: whether a token is not an ordinary word."""
    return lambda token: token.lower() not in ordinary


def needed_after(before: TextIndex, after: Messages, visible: str, counts: Definition) -> list[str]:
    """Return the tokens that the agent writes after the cut and can only know from before it.

    Args:
        before: Index of the text before the cut.
        after: Messages after the cut.
        visible: Text that no compaction removes: the system prompt.
        counts: Whether a token is of the kind to be measured.
    """
    visible_tokens = {match[0] for match in tokens_of(visible)}
    needed: dict[str, None] = {}
    for message in after:
        written = {
            match[0] for text in texts_of((message,), agent_only=True) for match in tokens_of(text)
        }
        for token in sorted(written - visible_tokens):
            if token in before.token_positions and counts(token):
                needed[token] = None
        visible_tokens |= written
        visible_tokens |= {match[0] for text in texts_of((message,)) for match in tokens_of(text)}
    return list(needed)


def are_preserved(needed: Sequence[str], before: TextIndex, output: TextIndex) -> list[bool]:
    """Return for each needed token whether `output` has it with its surroundings."""
    return [_is_preserved(token, before.words_near(token), output) for token in needed]


def _is_preserved(token: str, near: set[str], output: TextIndex) -> bool:
    return any(
        len(near.intersection(output.words_around(position, len(token)))) >= CONTEXT_WORDS
        for position in output.token_positions.get(token, ())
    )

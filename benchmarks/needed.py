"""What an agent will need of its past, and whether a text still holds it: the judge of recall.

A string is needed where the agent itself writes it in the messages after the cut, it stood before
the cut, and nothing showed it again first. It is kept only with its context: at least two ordinary
words within 160 characters of it that also stood near it before the cut. So a bare list of names
is worth nothing. The judge uses none of the product's code but its reader of formats.
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
# A token that stands in more of the conversations than this part is an ordinary word.
ORDINARY_SHARE = 0.05

_TOKEN = re.compile(r"[^\W_][\w./:@#-]{2,}\w")
_WORD = re.compile(r"(?<![^\s\"'(\[{])[A-Za-z][a-z]{2,}(?![^\s\"'.,;:!?)\]}]|[.:]\w)")
# Entities by pattern: paths, identifiers with inner structure, codes, long numbers, addresses.
_ENTITY = re.compile(
    r".*/.+|.+\.[a-z]{1,4}|.*[a-z][A-Z].*|.+[_@#].+|.*\d{3,}.*|[A-Z]{2,}[A-Z0-9_-]{2,}|.*[A-Z]+\d+.*"
)

Definition = Callable[[str], bool]


def spoken(messages: Messages, *, agent_only: bool = False) -> Iterator[str]:
    """The texts of messages: what is said, what is called (strings apart), what is answered."""
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
    """A call as one text; its string arguments keep their lines."""
    arguments: Any = call.arguments
    if not isinstance(arguments, dict):
        return f"{call.name}({arguments})"
    shown = (
        f"{key}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for key, value in arguments.items()  # pyright: ignore[reportUnknownVariableType]
    )
    return f"{call.name}({', '.join(shown)})"


def tokens_of(text: str) -> Iterator[re.Match[str]]:
    """The tokens of four characters and more: words, numbers, paths and identifiers."""
    return _TOKEN.finditer(text)


def ordinary_words(conversations: Iterable[str]) -> frozenset[str]:
    """Tokens and words, in lower case, that stand in many conversations."""
    times: Counter[str] = Counter()
    number = 0
    for text in conversations:
        number += 1
        found = {match[0].lower() for match in _TOKEN.finditer(text)}
        times.update(found | {match[0].lower() for match in _WORD.finditer(text)})
    return frozenset(word for word, seen in times.items() if seen > number * ORDINARY_SHARE)


@dataclass(frozen=True, slots=True)
class Past:
    """The text before the cut, and where its tokens and its ordinary words stand."""

    text: str
    places: dict[str, list[int]]
    word_places: list[int]
    words: list[str]

    def near(self, token: str) -> set[str]:
        """The ordinary words near any place of `token`."""
        found: set[str] = set()
        for at in self.places.get(token, ()):
            found |= set(_words_near(self, at, len(token)))
        return found


def past_of(text: str, ordinary: frozenset[str]) -> Past:
    """The index of `text`."""
    places: dict[str, list[int]] = {}
    for match in tokens_of(text):
        places.setdefault(match[0], []).append(match.start())
    at: list[int] = []
    words: list[str] = []
    for match in _WORD.finditer(text):
        word = match[0].lower()
        if word in ordinary:
            at.append(match.start())
            words.append(word)
    return Past(text, places, at, words)


def is_entity(token: str) -> bool:
    """Whether a token has the shape of a name: the definition by pattern."""
    return _ENTITY.fullmatch(token) is not None


def is_rare(ordinary: frozenset[str]) -> Definition:
    """Whether a token is rare: in hardly any other conversation."""
    return lambda token: token.lower() not in ordinary


def needed_after(past: Past, after: Messages, visible: str, wanted: Definition) -> list[str]:
    """What the agent writes after the cut and could only know from before it.

    Args:
        past: What stood before the cut.
        after: The messages after it, as many as are looked at.
        visible: What stays in sight whatever is compacted: the system prompt.
        wanted: The definition of a string that counts.
    """
    shown = {match[0] for match in tokens_of(visible)}
    needed: dict[str, None] = {}
    for message in after:
        written = {
            match[0] for text in spoken((message,), agent_only=True) for match in tokens_of(text)
        }
        for token in sorted(written - shown):
            if token in past.places and wanted(token):
                needed[token] = None
        shown |= written
        shown |= {match[0] for text in spoken((message,)) for match in tokens_of(text)}
    return list(needed)


def kept(needed: Sequence[str], past: Past, output: Past) -> list[bool]:
    """For each needed string, whether `output` still has it with its context."""
    return [_kept(token, past.near(token), output) for token in needed]


def _kept(token: str, near: set[str], output: Past) -> bool:
    return any(
        len(near.intersection(_words_near(output, at, len(token)))) >= CONTEXT_WORDS
        for at in output.places.get(token, ())
    )


def _words_near(past: Past, at: int, chars: int) -> list[str]:
    start = bisect_left(past.word_places, at - CONTEXT_CHARS)
    stop = bisect_left(past.word_places, at + chars + CONTEXT_CHARS)
    return past.words[start:stop]

"""The names in messages (paths, identifiers, numbers), and the ordinary words that stand near them.

A name that the model uses again is known where it stands in the request. It is known with its
context where words that stood near it in the conversation stand near it in the request as well: a
bare list of names explains nothing.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from context_compaction import JsonObject

# Names with inner structure: what an agent copies rather than says. Plain words prove nothing.
_NAME = re.compile(
    r"[\w.~-]{1,200}+/[\w./-]+|\b[A-Za-z]\w*[._-]\w[\w.-]*|\b[a-z]+[A-Z]\w*|\b[A-Z][a-z]+[A-Z]\w*"
    r"|\b(?=\w*\d)[0-9a-zA-Z]{5,}\b"
)
_MIN_NAME_CHARS = 5
# Whole words beside blanks, quotes and brackets, so that a name's own parts are none of them.
_WORD = re.compile(r"(?<![^\s\"'(\[{])[A-Za-z][a-z]{2,}(?![^\s\"'.,;:!?)\]}])")
# As benchmarks/needed.py judges: two words within 160 characters.
CONTEXT_CHARS = 160
CONTEXT_WORDS = 2


@dataclass(frozen=True, slots=True)
class Named:
    """A message's text and the names in it."""

    text: str
    names: frozenset[str]

    def near(self, name: str) -> set[str]:
        """The words near any place of `name`, in lower case."""
        found: set[str] = set()
        at = self.text.find(name) if name in self.names else -1
        while at >= 0:
            start, stop = max(0, at - CONTEXT_CHARS), at + len(name) + CONTEXT_CHARS
            found.update(match[0].lower() for match in _WORD.finditer(self.text, start, stop))
            at = self.text.find(name, at + len(name))
        return found


@dataclass(slots=True)
class Names:
    """What messages name, by object: the same ones come back call after call."""

    _named: dict[int, tuple[JsonObject, Named]] = field(
        default_factory=dict[int, tuple[JsonObject, Named]]
    )
    _stood_in: dict[str, list[Named]] = field(default_factory=dict[str, list[Named]])

    def learn(self, messages: Iterable[JsonObject]) -> None:
        """Messages that the conversation has had from now on."""
        for message in messages:
            named = self._of(message)
            for name in named.names:
                self._stood_in.setdefault(name, []).append(named)

    def needed(self, answer: JsonObject) -> frozenset[str]:
        """The names in an answer that had stood in the conversation before."""
        return frozenset(name for name in self._of(answer).names if name in self._stood_in)

    def found(self, needed: Iterable[str], request: Sequence[JsonObject]) -> tuple[int, int]:
        """How many of the names stand in the request, and how many with their context."""
        shown = [self._of(message) for message in request]
        bare = in_context = 0
        for name in needed:
            places = [named for named in shown if name in named.names]
            bare += bool(places)
            in_context += self._has_context(name, places)
        return bare, in_context

    def _has_context(self, name: str, places: Sequence[Named]) -> bool:
        originals = self._stood_in[name]
        if any(named is other for named in places for other in originals):
            return True
        near: set[str] = set()
        for named in originals:
            near |= named.near(name)
        # A name that never had so many words beside it needs all that it had.
        wanted = min(CONTEXT_WORDS, len(near))
        return any(len(near & named.near(name)) >= wanted for named in places)

    def _of(self, message: JsonObject) -> Named:
        if id(message) not in self._named:
            text = "\n".join(_texts(message))
            matches = (match.rstrip("./-") for match in _NAME.findall(text))
            names = frozenset(name for name in matches if len(name) >= _MIN_NAME_CHARS)
            self._named[id(message)] = (message, Named(text, names))
        return self._named[id(message)][1]


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in cast("dict[str, object]", value).values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _texts(item)

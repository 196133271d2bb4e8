"""Measure which names (paths, identifiers, numbers) of a conversation a request still contains.

A name is found if the request contains it. It is found in context if the request also contains
words near it that were near it in the conversation, because a bare list of names explains nothing.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from context_compaction import JsonObject

# Only names with an inner structure count: a model copies them, but may choose plain words itself.
_NAME = re.compile(
    r"[\w.~-]{1,200}+/[\w./-]+|\b[A-Za-z]\w*[._-]\w[\w.-]*|\b[a-z]+[A-Z]\w*|\b[A-Z][a-z]+[A-Z]\w*"
    r"|\b(?=\w*\d)[0-9a-zA-Z]{5,}\b"
)
_MIN_NAME_CHARS = 5
# Words between blanks, quotes and brackets, because the parts of a name do not explain the name.
_WORD = re.compile(r"(?<![^\s\"'(\[{])[A-Za-z][a-z]{2,}(?![^\s\"'.,;:!?)\]}])")
# The same criterion as in benchmarks/needed.py: two words within 160 characters.
CONTEXT_CHARS = 160
CONTEXT_WORDS = 2


@dataclass(frozen=True, slots=True)
class _NamedText:
    """The text of a message, and the names in it."""

    text: str
    names: frozenset[str]

    def words_near(self, name: str) -> set[str]:
        """Return the words near each occurrence of `name`, in lower case."""
        words: set[str] = set()
        position = self.text.find(name)
        while position >= 0:
            start, stop = max(0, position - CONTEXT_CHARS), position + len(name) + CONTEXT_CHARS
            words.update(match[0].lower() for match in _WORD.finditer(self.text, start, stop))
            position = self.text.find(name, position + len(name))
        return words


class NameRecall:
    """Names of the messages of one conversation.

    Texts are cached by object, because every request repeats most messages.
    """

    def __init__(self) -> None:
        # The cache keeps the message, so that no other object can get its id.
        self._texts: dict[int, tuple[JsonObject, _NamedText]] = {}
        self._occurrences: dict[str, list[_NamedText]] = {}

    def learn(self, messages: Iterable[JsonObject]) -> None:
        """Add new messages to the conversation."""
        for message in messages:
            text = self._named_text(message)
            for name in text.names:
                self._occurrences.setdefault(name, []).append(text)

    def needed_names(self, answer: JsonObject) -> frozenset[str]:
        """Return the names in `answer` that occurred in the conversation before."""
        return frozenset(self._named_text(answer).names & self._occurrences.keys())

    def count_found(self, names: Iterable[str], request: Sequence[JsonObject]) -> tuple[int, int]:
        """Return how many of `names` the request contains, and how many of them in context."""
        texts = [self._named_text(message) for message in request]
        found = found_in_context = 0
        for name in names:
            texts_with_name = [text for text in texts if name in text.names]
            found += bool(texts_with_name)
            found_in_context += self._is_in_context(name, texts_with_name)
        return found, found_in_context

    def _is_in_context(self, name: str, texts: Sequence[_NamedText]) -> bool:
        originals = self._occurrences[name]
        if any(text is original for text in texts for original in originals):
            return True
        original_words: set[str] = set()
        for original in originals:
            original_words |= original.words_near(name)
        # If the conversation has fewer words near the name, the request needs all of them.
        needed_count = min(CONTEXT_WORDS, len(original_words))
        return any(len(original_words & text.words_near(name)) >= needed_count for text in texts)

    def _named_text(self, message: JsonObject) -> _NamedText:
        if id(message) not in self._texts:
            text = "\n".join(_strings(message))
            matches = (match.rstrip("./-") for match in _NAME.findall(text))
            names = frozenset(name for name in matches if len(name) >= _MIN_NAME_CHARS)
            self._texts[id(message)] = (message, _NamedText(text, names))
        return self._texts[id(message)][1]


def _strings(value: object) -> Iterator[str]:
    """Yield every string in a JSON value, without the keys of objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in cast("dict[str, object]", value).values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _strings(item)

"""The names (paths, identifiers, numbers) in messages, by which recall is measured."""

import re
from collections.abc import Iterable, Iterator
from typing import cast

from context_compaction import JsonObject

# Only names with an inner structure count: a model copies them, but may choose plain words itself.
_NAME = re.compile(
    r"[\w.~-]{1,200}+/[\w./-]+|\b[A-Za-z]\w*[._-]\w[\w.-]*|\b[a-z]+[A-Z]\w*|\b[A-Z][a-z]+[A-Z]\w*"
    r"|\b(?=\w*\d)[0-9a-zA-Z]{5,}\b"
)
_MIN_NAME_CHARS = 5


class MessageNames:
    """The names in messages, cached by object because every request repeats most messages."""

    def __init__(self) -> None:
        # The cache keeps the message, so that no other object can get its id.
        self._known: dict[int, tuple[JsonObject, frozenset[str]]] = {}

    def __call__(self, messages: Iterable[JsonObject]) -> frozenset[str]:
        """Return all names in the messages."""
        return frozenset[str]().union(*map(self._names_of, messages))

    def _names_of(self, message: JsonObject) -> frozenset[str]:
        if id(message) not in self._known:
            matches = (match.rstrip("./-") for match in _NAME.findall("\n".join(_strings(message))))
            names = frozenset(name for name in matches if len(name) >= _MIN_NAME_CHARS)
            self._known[id(message)] = (message, names)
        return self._known[id(message)][1]


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

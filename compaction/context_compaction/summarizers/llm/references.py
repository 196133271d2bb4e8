"""Numbers of messages in a summary: what a line cites must be in its message or near it.

A reader follows a number to the message itself, so a wrong one is worse than none. A number that no
message has is removed; so is one near which no message contains what its line quotes or names. The
statement stays: it is checked by its words.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from context_compaction.messages.names import kind_of, names_in

# A call, its answer and what is said of it stand side by side.
_NEAR_MESSAGES = 3
_REFERENCE = re.compile(r"(?<![\w\])}])\[(\d{1,9}(?:(?: ?[-–,;] ?| and )\d{1,9}){0,40})\]")
_NUMBER = re.compile(r"\d+")
_CODE = re.compile(r"`[^`\n]*`")
_QUOTED = re.compile(r"[\"“„«`]([^\"“”„«»`\n]{3,})[\"”“»`]")
_HEADING = re.compile(r"#{1,6} ")


@dataclass(frozen=True, slots=True)
class NumberedTexts:
    """The messages that a summary may name.

    Attributes:
        texts: The lower-case text of each, by its number.
        others: Numbers of messages that it may name too, whose text is not available.
    """

    texts: Mapping[int, str] = field(default_factory=dict[int, str])
    others: frozenset[int] = frozenset()

    def has(self, number: int) -> bool:
        """Whether a message has this number."""
        return number in self.texts or number in self.others

    def stands_near(self, words: Sequence[str], first: int, last: int) -> bool:
        """Whether a message in or near the range contains any of `words`; True for `others`."""
        if self.others.intersection((first, last)):
            return True
        near = range(first - _NEAR_MESSAGES, last + _NEAR_MESSAGES + 1)
        return any(word in self.texts.get(number, "") for number in near for word in words)


def without_false_numbers(text: str, numbered: NumberedTexts) -> tuple[str, tuple[str, ...]]:
    """`text` without false numbers of messages, and the lines that contained them."""
    if not numbered.texts:
        return text, ()
    lines = text.split("\n")
    checked = [line if _HEADING.match(line) else _checked(line, numbered) for line in lines]
    changed = (old.strip() for old, new in zip(lines, checked, strict=True) if new != old)
    return "\n".join(checked), tuple(changed)


def _checked(line: str, numbered: NumberedTexts) -> str:
    references = [found for found in _REFERENCE.finditer(line) if not _is_in_code(line, found)]
    if not references:
        return line
    bare = _REFERENCE.sub(" ", line)
    said = dict.fromkeys(word.lower() for word in _named_in(bare))
    words = [word for word in said if any(word in text for text in numbered.texts.values())]
    for found in reversed(references):
        told = ", ".join(part for part in _parts(found[1]) if _is_so(part, words, numbered))
        if told != ", ".join(_parts(found[1])):
            before = line[: found.start()]
            line = f"{f'{before}[{told}]' if told else before.rstrip()}{line[found.end() :]}"
    return line


def _parts(numbers: str) -> list[str]:
    """The numbers and ranges of a reference."""
    return [" ".join(part.split()) for part in re.split(r"[,;]| and ", numbers)]


def _is_so(part: str, words: Sequence[str], numbered: NumberedTexts) -> bool:
    first, *rest = map(int, _NUMBER.findall(part))
    last = rest[-1] if rest else first
    if not (numbered.has(first) and numbered.has(last) and first <= last):
        return False
    return not words or numbered.stands_near(words, first, last)


def _named_in(line: str) -> Iterator[str]:
    """The quotations and the names in a line."""
    yield from (quoted.strip(" .,;:!?") for quoted in _QUOTED.findall(line))
    yield from (name for name in names_in(line) if kind_of(name))


def _is_in_code(line: str, found: re.Match[str]) -> bool:
    return any(code.start() < found.end() <= code.end() for code in _CODE.finditer(line))

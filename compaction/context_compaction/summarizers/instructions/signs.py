"""The signs of a rule, a wish, a correction: patterns of many languages, for find.py.

They only rank what the user said; nothing depends on their being complete. Each language has a file
in data/ with a table for each sign: `words` match as whole words, `anywhere` also within one (of
scripts without blanks), `starts` at the beginning of the sentence and `clauses` of a clause, where
`before` may precede; `examples` have the sign by this language alone.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class Signs:
    """The pattern of each sign in a sentence.

    Attributes:
        rule: A rule, a preference, a decision.
        lasting: It holds for all time: no wish of the moment.
        heading: What is listed behind it are rules.
        under: Between the beginning of its clause and a sign, this means that the sign is not
            the sentence's own ("make a rule that says never ...", "if you must ...").
        points: A word that needs another sentence to be understood ("it", "that").
        sure: The other sure signs of a rule.
        telling: A report of what was done or seen; a sign after it is reported, no rule.
        correction: It corrects something.
        negation: Precedes a name or value that is not to be, or not any more.
        agreement: It begins with a yes, with thanks, a greeting.
        errand: The business of the moment: what is asked for now, or reported of oneself, holds
            until it is done.
        about_oneself: Reported of oneself and now ("I don't have the number at hand"), unlike what
            somebody is or never does ("I'm vegetarian").
    """

    rule: re.Pattern[str]
    lasting: re.Pattern[str]
    heading: re.Pattern[str]
    under: re.Pattern[str]
    points: re.Pattern[str]
    sure: re.Pattern[str]
    telling: re.Pattern[str]
    correction: re.Pattern[str]
    negation: re.Pattern[str]
    agreement: re.Pattern[str]
    errand: re.Pattern[str]
    about_oneself: re.Pattern[str]


@cache
def signs() -> Signs:
    """The signs in all languages together, read at the first call."""
    return signs_of(list(languages().values()))


@cache
def languages() -> Mapping[str, Any]:
    """By language the contents of its file, English first."""
    found = (file for file in (files(__package__ or "") / "data").iterdir())
    by_name = {file.name: file.read_text("utf-8") for file in found if file.name.endswith(".toml")}
    # English first, then by the alphabet: of two alternatives the first is found.
    order = sorted(by_name, key=lambda name: (name != "english.toml", name))
    return {name.removesuffix(".toml"): tomllib.loads(by_name[name]) for name in order}


def signs_of(chosen: Sequence[Mapping[str, Any]]) -> Signs:
    """The patterns of the signs in the `chosen` languages."""
    return Signs(*(_pattern(sign.name, chosen) for sign in fields(Signs)))


def _pattern(sign: str, chosen: Sequence[Mapping[str, Any]]) -> re.Pattern[str]:
    def any_of(kind: str) -> str:
        found = [one for language in chosen for one in language.get(sign, {}).get(kind, ())]
        return "|".join(found) or "(?!)"

    return re.compile(
        rf"(?:\A(?:{any_of('before')})*(?:{any_of('starts')})"
        rf"|(?:\A|[,;:.!?(–—]\s*+)(?:{any_of('before')})*(?:{any_of('clauses')}))\b"
        rf"|\b(?:{any_of('words')})\b|{any_of('anywhere')}",
        re.IGNORECASE,
    )

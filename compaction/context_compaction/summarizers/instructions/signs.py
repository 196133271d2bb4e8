"""The signs of a rule, a wish, a correction: patterns of many languages, for find.py.

They only rank what the user said; nothing depends on their being complete. Each language has a file
in data/ with a table for each sign: `words` match as whole words, `anywhere` also within one (of
scripts without blanks), `starts` at the beginning of the sentence and `clauses` of a clause, where
`before` may precede; `examples` have the sign by this language alone.

- rule: A rule, a preference, a decision.
- lasting: It holds for all time: no wish of the moment.
- heading: What is listed behind it are rules.
- under: Between the beginning of its clause and a sign, this means that the sign is not the
  sentence's own ("make a rule that says never ...", "if you must ...").
- points: A word that needs another sentence to be understood ("it", "that").
- sure: The other sure signs of a rule.
- telling: A report of what was done or seen; a sign after it is reported, no rule.
- correction: It corrects something.
- negation: Precedes a name or value that is not to be, or not any more.
- agreement: It begins with a yes, with thanks, a greeting.
- errand: The business of the moment: what is asked for now, or reported of oneself, holds until it
  is done.
- about_oneself: Reported of oneself and now ("I don't have the number at hand"), unlike what
  somebody is or never does ("I'm vegetarian").
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeAlias

Sign: TypeAlias = Literal[
    "rule", "lasting", "heading", "under", "points", "sure", "telling", "correction", "negation",
    "agreement", "errand", "about_oneself",
]  # fmt: skip


@cache
def sign(name: Sign) -> re.Pattern[str]:
    """The pattern of a sign in all languages together, made at the first call."""
    return sign_of(name, list(languages().values()))


@cache
def languages() -> Mapping[str, Any]:
    """By language the contents of its file, English first."""
    found = (file for file in (files(__package__ or "") / "data").iterdir())
    by_name = {file.name: file.read_text("utf-8") for file in found if file.name.endswith(".toml")}
    # English first, then by the alphabet: of two alternatives the first is found.
    order = sorted(by_name, key=lambda name: (name != "english.toml", name))
    return {name.removesuffix(".toml"): tomllib.loads(by_name[name]) for name in order}


def sign_of(name: Sign, chosen: Sequence[Mapping[str, Any]]) -> re.Pattern[str]:
    """The pattern of a sign in the `chosen` languages."""

    def any_of(kind: str) -> str:
        found = [one for language in chosen for one in language.get(name, {}).get(kind, ())]
        return "|".join(found) or "(?!)"

    return re.compile(
        rf"(?:\A(?:{any_of('before')})*(?:{any_of('starts')})"
        rf"|(?:\A|[,;:.!?(–—]\s*+)(?:{any_of('before')})*(?:{any_of('clauses')}))\b"
        rf"|\b(?:{any_of('words')})\b|{any_of('anywhere')}",
        re.IGNORECASE,
    )

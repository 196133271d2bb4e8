"""The language of a text, by its script and its commonest small words. Pure.

It is for a warning only: a text in which nothing is clear has no language.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

from context_compaction.summarizers.instructions.own_words import own_words

_SMALL_WORDS = {
    "English": "the and is to of that it was with for not you this are be in on",
    "German": "der die und ist nicht das ich den mit für auf ein zu von wir im bitte",
    "French": "le la les et est pas des une pour dans que qui sur avec je du au",
    "Spanish": "el la los y es no en que por con para una del se las lo su",
    "Portuguese": "o os e é não que em para com uma por do da as se no na",
    "Italian": "il che di è non per una con sono del della gli e da questo la",
    "Dutch": "de het een en is niet van dat ik met voor op zijn te deze in wij",
    "Polish": "nie się na jest do to że w z i jak co ale dla po są",
    "Turkish": "ve bir bu için ile de da olarak değil çok daha var ne mi",
    "Swedish": "och att det är som en på för inte med jag av till den har om",
}
_WORDS = {name: frozenset(words.split()) for name, words in _SMALL_WORDS.items()}
# Code, headings of our prompts, quotations and names are in no language.
_LEFT_OUT = re.compile(
    r"`[^`\n]*`|^#.*$|[\"“„«「][^\"“”»」\n]*[\"”“»」]|\S*[_/\\.@<>=]\S+", re.MULTILINE
)
_LETTERS = 5_000


def language_of(text: str) -> str:
    """The language of `text`, or its script; "" where that is not clear."""
    text = _LEFT_OUT.sub(" ", own_words(text))[:_LETTERS]
    scripts = Counter(unicodedata.name(char, "?").split()[0] for char in text if char.isalpha())
    if not scripts:
        return ""
    latin = scripts.pop("LATIN", 0)
    if scripts["HIRAGANA"] + scripts["KATAKANA"] > latin // 20:
        return "Japanese"
    script, number = scripts.most_common(1)[0] if scripts else ("", 0)
    # English names stand in texts of every language, and a Chinese character is a word.
    if number > latin // 5:
        return {"CJK": "Chinese", "HANGUL": "Korean"}.get(script, script.capitalize())
    words = re.findall(r"[^\W\d_]+", text.lower())
    hits = Counter({name: sum(word in small for word in words) for name, small in _WORDS.items()})
    (first, most), (_, next_most) = hits.most_common(2)
    is_clear = most >= 3 and most * 8 >= len(words) and most >= 1.3 * next_most
    return first if is_clear else ""


def common_language(texts: Iterable[str]) -> str:
    """The language of more than half of the `texts` whose language is clear; "" if none is."""
    found = Counter(language for text in texts if (language := language_of(text)))
    language, number = found.most_common(1)[0] if found else ("", 0)
    return language if 2 * number > found.total() else ""

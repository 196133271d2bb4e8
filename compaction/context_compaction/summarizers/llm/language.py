"""Which language a text is in, where that is plain: by its script, then by its small words.

It only serves to ask a model for a summary in the user's language, and to check that. So it prefers
to return None: code, names and short texts have no language.
"""

import re
from collections import Counter
from collections.abc import Iterable

_WORD = re.compile(r"[^\W\d_]+")
# Code and quoted material say nothing of who writes.
_NOT_PROSE = re.compile(
    r"```.*?```|`[^`\n]*`|https?://\S+|(?<![^\s`])[^\s/\\_]{0,400}+[/\\_]\S*", re.DOTALL
)

_MIN_CHARS = 40  # of letters
_MIN_SMALL_WORDS = 5
_MIN_LEAD = 2.0  # the best language must have so many times the small words of the next

_MIN_SHARE = 0.12  # of the texts that are no mere words: one sentence of twenty is no language

_HEAD_CHARS = 600  # of a message: what is pasted into it, a log or a file, comes after the words

_SCRIPTS = (
    ("Japanese", re.compile(r"[\u3040-\u30ff]")),
    ("Korean", re.compile(r"[\u1100-\u11ff\uac00-\ud7af]")),
    ("Chinese", re.compile(r"[\u3400-\u9fff\U00020000-\U0002ffff]")),
    ("Russian", re.compile(r"[\u0400-\u04ff]")),
    ("Greek", re.compile(r"[\u0370-\u03ff]")),
    ("Arabic", re.compile(r"[\u0600-\u06ff]")),
    ("Hebrew", re.compile(r"[\u0590-\u05ff]")),
    ("Hindi", re.compile(r"[\u0900-\u097f]")),
    ("Thai", re.compile(r"[\u0e00-\u0e7f]")),
)
# A letter of a dense script carries about as much as two or three Latin ones, and names in Latin
# letters stand in every text about computers.
_SCRIPT_SHARE = 0.2
_KANA_SHARE = 0.1  # Japanese is written with Chinese characters too

# Without the words that are also keywords of programming languages: for, in, if, not, and, or, is.
_SMALL_WORDS = {
    "English": "the of to that it was on are have by you me what we they will can my your please",
    "Spanish": "el la los las de que en y un una por con para es no del se su como pero más",
    "French": "le la les des de et en un une est que pour dans qui pas sur au avec ce il ne du",
    "German": "der die das und ist nicht ein eine zu mit den von auf für im dem des sich auch wird",
    "Portuguese": "o os as de que e em um uma do da não para com por é se na no mais dos",
    "Italian": "il la di che e un una per non in con del della sono è si le gli come ma nel",
    "Dutch": "de het een en van is dat niet in op te voor met zijn er aan ook maar om bij",
    "Polish": "i w na nie się z do to jest że jak o po ale przez dla tak od są być",
}
_LANGUAGES_OF: dict[str, tuple[str, ...]] = {}
for _language, _words in _SMALL_WORDS.items():
    for _word in _words.split():
        _LANGUAGES_OF[_word] = (*_LANGUAGES_OF.get(_word, ()), _language)


def language_of(text: str) -> str | None:
    """The English name of the language of `text`, or None where it is not plain."""
    prose = _NOT_PROSE.sub(" ", text)
    words = _WORD.findall(prose)
    letters = sum(map(len, words))
    if letters == 0:
        return None
    joined = "".join(words)
    for name, script in _SCRIPTS:
        found = len(script.findall(joined))
        share = _KANA_SHARE if name == "Japanese" else _SCRIPT_SHARE
        # A dense script says much in few letters.
        if found >= max(6, letters * share):
            return name
    if letters < _MIN_CHARS:
        return None
    hits = Counter(name for word in words for name in _LANGUAGES_OF.get(word.lower(), ()))
    (best, most), (_, next_most) = [*hits.most_common(2), ("", 0), ("", 0)][:2]
    return best if most >= _MIN_SMALL_WORDS and most >= next_most * _MIN_LEAD else None


def speaker_language(texts: Iterable[str]) -> str | None:
    """The language of most of the texts of one person, or None where it is not plain."""
    # What is pinned stands in several places, and was said once.
    heads = list(dict.fromkeys(text[:_HEAD_CHARS] for text in texts))
    votes = Counter(filter(None, map(language_of, heads)))
    if not votes:
        return language_of("\n".join(heads))  # many short texts may tell what each alone does not
    best, count = votes.most_common(1)[0]
    long_count = sum(len(head) >= _MIN_CHARS // 2 for head in heads)
    has_most = count * 2 > votes.total() and count >= long_count * _MIN_SHARE
    return best if has_most else None

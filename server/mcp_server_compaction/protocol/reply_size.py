"""How many tokens a reply may have, without the vocabulary, which takes 0.4 s to load.

The pieces are those that o200k_base cuts a text into before it looks them up. What cannot be known
without the vocabulary is how many tokens a piece has, so each kind is taken for a little more than
what was measured: transcripts come out at 1.05 to 1.3 times their tokens, Japanese and Korean at
1.4, Chinese at 3, Russian at 4. Only noise of characters that nobody writes together may come out
below.
"""

import re
from functools import lru_cache

_PIECE = re.compile(
    r"(?P<frame>transcript://|messages|assistant|\"[:,]\"|\"\},\{\")"  # around hits
    r"|(?P<code>(?=[A-Za-z+/]{0,60}+[0-9]+[A-Za-z+/]{1,60}+[0-9])[A-Za-z0-9+/=]{12,})"  # base64
    r"|(?P<escape>\\[a-z])|(?P<word>\.?(?:[A-Z]*[a-z]+|[A-Z]+))"
    r"|(?P<number>[0-9]+)|(?P<blank>[ \t\r\n]+)"
    r"|(?P<mark>[!-/:-@\[-`{-~]+)"
    r"|(?P<rare>[\U00010000-\U0010ffff])|(?P<kana>[\u3041-\u30fe]+)"
    r"|(?P<far>[^\W_\x00-\u07ff\u3041-\u30fe\U00010000-\U0010ffff]+)"
    r"|(?P<near>[^\W_\x00-\x7f]+)|(?P<sign>[、。「」\s])|(?P<symbol>.)",
    re.DOTALL,
)
# What can be spoken is likely to be in the vocabulary, whole or in large parts.
_SPOKEN = re.compile(r"(?!.*[^aeiouy]{4})(?=.*[aeiouy]).{3,}|.{1,2}", re.IGNORECASE)
_CHARS_A_TOKEN = {
    "frame": 5.0,
    "code": 1.4,
    "escape": 2.0,
    "number": 3.0,
    "blank": 60.0,
    "mark": 2.0,
    "near": 0.9,
    "sign": 1.0,
    "kana": 0.85,
    "far": 0.43,
    "rare": 0.25,
}
_SHORT_SPOKEN_CHARS = 7  # one token
_SPOKEN_CHARS_A_TOKEN = 4.0
_UNSPOKEN_CHARS_A_TOKEN = 1.6
_SYMBOL_TOKENS = 3  # bytes of a character that is no letter


def most_tokens(text: str) -> int:
    """An estimate of `text`'s tokens in o200k_base that errs on the high side."""
    return sum(
        0 if match[0] == " " else _piece_tokens(match.lastgroup or "", match[0])
        for match in _PIECE.finditer(text)
    )


@lru_cache(10_000)
def _piece_tokens(kind: str, piece: str) -> int:
    if kind == "symbol":
        return _SYMBOL_TOKENS
    if kind != "word":
        return -int(-len(piece) // _CHARS_A_TOKEN[kind])
    piece = piece.lstrip(".")  # `.py` is looked up whole
    if not _SPOKEN.fullmatch(piece):
        chars_a_token = _UNSPOKEN_CHARS_A_TOKEN
    elif len(piece) <= _SHORT_SPOKEN_CHARS:
        return 1
    else:
        chars_a_token = _SPOKEN_CHARS_A_TOKEN
    return -int(-len(piece) // chars_a_token)

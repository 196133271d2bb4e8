"""Words that a regular expression requires occur in every text that it matches."""

import regex
from context_compaction.archive.search.patterns import required_words
from hypothesis import given
from hypothesis import strategies as st

_PIECES = st.sampled_from([
    "foo", "bar", " ", "_", "-", "a", "b?", "c*", "d+", "e{2}", r"\d", r"\b", r"\.", ".", "[ab ]",
    "|", "[a|b]", "[]|a]", r"\|",
    "(x)", "(y)?", "^", "$", "x|y", "(?i)", "压", "\n", r"\n", r"\s+", "1",
])  # fmt: skip
_TEXTS = st.lists(
    st.sampled_from(["foo", "bar", *" _-abcdexy.压1"]),
    max_size=12,
).map("".join)


@given(st.lists(_PIECES, min_size=1, max_size=6).map("".join), _TEXTS)
def test_required_words_occur_in_every_matching_text(pattern: str, text: str) -> None:
    try:
        is_match = regex.search(pattern, text) is not None
    except regex.error:
        return
    words = regex.findall(r"[^\W_压]+", text)
    for required in required_words(pattern) if is_match else ():
        name = required.removesuffix("*")
        if required.endswith("*"):
            assert any(word.startswith(name) for word in words), (pattern, required)
        else:
            assert name in words, (pattern, required)

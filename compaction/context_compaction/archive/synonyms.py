"""Words that stand for one another in conversations with agents, for questions in one's own words.

Whoever asks for "the suitcase" may have written of baggage. `synonyms.txt` holds what is said in
talks about software, shells, shops and travel, in groups; it was written by hand. WordNet's groups
gained nothing here, and the neighbours of GloVe's word vectors a third of what these do.
"""

from collections import defaultdict
from functools import cache
from importlib import resources

from context_compaction.archive.tokenizer import phrase_words

_COMMENT = "#"


def synonyms_of(word: str) -> tuple[str, ...]:
    """Other words, as they are indexed, that may stand for `word`, as it is indexed."""
    return _synonyms().get(word, ())


@cache
def _synonyms() -> dict[str, tuple[str, ...]]:
    file = resources.files("context_compaction.archive") / "synonyms.txt"
    found: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith(_COMMENT):
            continue
        words = phrase_words(line)
        for word in words:
            found[word] |= dict.fromkeys(other for other in words if other != word)
    return {word: tuple(others) for word, others in found.items()}

"""The o200k_base encoding as tiktoken builds it, to compare counts with."""

from functools import cache
from importlib.resources import files

import tiktoken
from context_compaction.tokens import vocabulary
from context_compaction.tokens.vocabulary import O200K_PATTERN, O200K_SPECIAL_TOKENS, read_ranks


@cache
def plain_o200k() -> tiktoken.Encoding:
    """Return the encoding of the vocabulary in the package with tiktoken's own pattern."""
    return tiktoken.Encoding(
        "plain o200k",
        pat_str=O200K_PATTERN,
        mergeable_ranks=read_ranks(files(vocabulary) / "o200k_base.tiktoken.gz"),
        special_tokens=O200K_SPECIAL_TOKENS,
    )

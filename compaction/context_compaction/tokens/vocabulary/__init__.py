"""The o200k_base vocabulary, which is part of the package so that counting needs no network.

`o200k_base.tiktoken.gz` is OpenAI's file, compressed (MIT, see LICENSE-tiktoken.txt; in issue 92 of
openai/tiktoken the maintainers say that the license covers the encoding files). tiktoken itself
would download the file at first use, without a timeout, so the encoding is built here.
"""

import gzip
import hashlib
import zlib
from binascii import a2b_base64
from importlib.resources import files
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from context_compaction.errors import VocabularyError
from context_compaction.messages.cache import run_once

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    import tiktoken


__all__ = [
    "O200K_PATTERN",
    "O200K_SHA256",
    "O200K_SPECIAL_TOKENS",
    "load_o200k",
    "o200k_tokens",
    "read_ranks",
]

O200K_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
O200K_SPECIAL_TOKENS = {"<|endoftext|>": 199_999, "<|endofprompt|>": 200_018}

# How o200k_base splits text before it merges bytes. A test compares it with tiktoken's pattern.
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_WORDS = "|".join([
    # A word that ends in lower case, with the character before it: " hello", "(world", "HTMLs".
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + _CONTRACTION,
    # A word that starts in upper case: " HTTP", "Über".
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + _CONTRACTION,
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r"\s*[\r\n]+",
])
_BLANKS = r"\s+(?!\S)|\s+"
O200K_PATTERN = f"{_WORDS}|{_BLANKS}"
# An equal pattern that is a third faster. tiktoken's automaton cannot look ahead, so without the
# group it tries all alternatives one by one.
_GROUPED_PATTERN = f"(?:{_WORDS})|{_BLANKS}"

_REINSTALL = "Reinstall mcp-server-compaction"


@run_once
def load_o200k() -> "tiktoken.Encoding":
    """Return the o200k_base encoding, built once per process from the file in the package.

    Building takes about 0.4 s of CPU and holds the GIL for half of that.

    Raises:
        VocabularyError: The file is missing or damaged.
    """
    import tiktoken

    ranks = read_ranks(files(__name__) / "o200k_base.tiktoken.gz")
    encoding = tiktoken.Encoding(
        "o200k_base",
        pat_str=_GROUPED_PATTERN,
        mergeable_ranks=ranks,
        special_tokens=O200K_SPECIAL_TOKENS,
    )
    ranks.clear()  # The encoding has a copy, so this frees 28 MB.
    return encoding


def o200k_tokens(text: str) -> int:
    """Return the number of tokens of a text. Control tokens count as plain text."""
    encoding = load_o200k()
    core = cast("Any", encoding._core_bpe)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
    try:
        # Four bytes per token, without an object for each token, as in `encode_to_numpy`.
        return memoryview(core.encode_to_tiktoken_buffer(text, set())).nbytes // 4
    except (AttributeError, UnicodeEncodeError):  # another tiktoken version; lone surrogates
        return len(encoding.encode(text, disallowed_special=()))


def read_ranks(path: "Traversable") -> dict[bytes, int]:
    """Return the token IDs by token bytes from a compressed .tiktoken file.

    Each line of the file has a token in base64, a space and its ID.

    Raises:
        VocabularyError: The file is missing, is not a gzip file, or has an unexpected hash.
    """
    try:
        text = gzip.decompress(path.read_bytes())
    except FileNotFoundError as error:
        raise VocabularyError(f"The vocabulary {path} is missing. {_REINSTALL}.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise VocabularyError(
            f"The vocabulary {path} is damaged: {error}. {_REINSTALL}."
        ) from error
    digest = hashlib.sha256(text).hexdigest()
    if digest != O200K_SHA256:
        raise VocabularyError(
            f"The vocabulary {path} is damaged: its SHA-256 is {digest}, not {O200K_SHA256}. "
            f"{_REINSTALL}."
        )
    # The hash proves that the IDs count the lines.
    return dict(zip(map(a2b_base64, text.split()[::2]), count(), strict=False))

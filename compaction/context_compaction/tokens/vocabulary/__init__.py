"""The o200k_base vocabulary, shipped inside the package so that counting never needs a network.

`o200k_base.tiktoken.gz` is OpenAI's own file, gzipped (MIT, see LICENSE-tiktoken.txt beside it; the
maintainers say in issue 92 of openai/tiktoken that the licence covers the encoding files). tiktoken
itself would download it at first use, without a timeout, so we build the encoding ourselves.
"""

import gzip
import hashlib
import zlib
from binascii import a2b_base64
from importlib.resources import files
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

# How o200k_base splits text before it merges bytes. A test holds it equal to tiktoken's own.
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_WORDS = "|".join([
    # a word that ends in lower case, with the one sign before it: " hello", "(world", "HTMLs"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + _CONTRACTION,
    # a word that begins in upper case: " HTTP", "Über"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + _CONTRACTION,
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r"\s*[\r\n]+",
])
_BLANKS = r"\s+(?!\S)|\s+"
O200K_PATTERN = f"{_WORDS}|{_BLANKS}"
# The same, a third faster: what looks ahead is not for tiktoken's automaton, which tries the
# alternatives beside it one by one unless they stand in a group of their own.
_GROUPED_PATTERN = f"(?:{_WORDS})|{_BLANKS}"

_REINSTALL = "Reinstall mcp-server-compaction"


@run_once
def load_o200k() -> "tiktoken.Encoding":
    """The o200k_base encoding, built once per process from the shipped file.

    It takes about 0.4 s of CPU and holds the GIL for half of that.

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
    ranks.clear()  # its automaton has copied them: 28 MB that no call of ours reads again
    return encoding


def o200k_tokens(text: str) -> int:
    """How many tokens a text has; control tokens are plain text."""
    encoding = load_o200k()
    core = cast("Any", encoding._core_bpe)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
    try:
        # As bytes, four a token, which spares an object for each; `encode_to_numpy` does the same.
        return memoryview(core.encode_to_tiktoken_buffer(text, set())).nbytes // 4
    except (AttributeError, UnicodeEncodeError):  # another tiktoken; lone surrogates
        return len(encoding.encode(text, disallowed_special=()))


def read_ranks(path: "Traversable") -> dict[bytes, int]:
    """The ranks (token bytes to token id) of a gzipped .tiktoken file: base64, space, id, a line.

    Raises:
        VocabularyError: The file is missing, is no gzip file, or its text has another hash.
    """
    try:
        text = gzip.decompress(path.read_bytes())
    except FileNotFoundError as error:
        raise VocabularyError(f"The vocabulary {path} is missing. {_REINSTALL}.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise VocabularyError(
            f"The vocabulary {path} is damaged: {error}. {_REINSTALL}."
        ) from error
    found = hashlib.sha256(text).hexdigest()
    if found != O200K_SHA256:
        raise VocabularyError(
            f"The vocabulary {path} is damaged: its SHA-256 is {found}, not {O200K_SHA256}. "
            f"{_REINSTALL}."
        )
    fields = text.split()
    return dict(zip(map(a2b_base64, fields[::2]), map(int, fields[1::2]), strict=True))

"""The vocabulary in the package is OpenAI's, complete, and never downloaded."""

import gzip
import hashlib
import importlib
import os
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import context_compaction
import pytest
from context_compaction.errors import VocabularyError
from context_compaction.tokens.vocabulary import (
    O200K_PATTERN,
    O200K_SPECIAL_TOKENS,
    load_o200k,
    o200k_tokens,
    read_ranks,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.support.plain_tiktoken import plain_o200k

SHIPPED = Path(str(files("context_compaction.tokens.vocabulary"))) / "o200k_base.tiktoken.gz"
UPSTREAM_URL = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"

NO_NETWORK = """
import sys

def refuse(event, arguments):
    if event.startswith("socket."):
        raise RuntimeError(f"{event}{arguments}")

sys.addaudithook(refuse)
"""


def run_python(code: str, **environment: str) -> str:
    """Return the output of `code` in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_pattern_specials_and_ranks_equal_those_of_tiktoken_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = tmp_path / hashlib.sha1(UPSTREAM_URL.encode()).hexdigest()
    cached.write_bytes(gzip.decompress(SHIPPED.read_bytes()))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))

    upstream = importlib.import_module("tiktoken_ext.openai_public").o200k_base()

    assert upstream["pat_str"] == O200K_PATTERN
    assert upstream["special_tokens"] == O200K_SPECIAL_TOKENS
    assert upstream["mergeable_ranks"] == read_ranks(SHIPPED)


# What its alternatives begin, end, and look ahead with, often side by side.
SPLIT_BY = st.sampled_from([
    " ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u2003", "\u3000", "\x85", "\x0b", "\x1c",
    "a", "Ab", "HTTP", "ǅ", "ʰ", "字", "\u0301", "1", "2345", "²", "'s", "'LL", "'", "(", "//", "_",
])  # fmt: skip


@given(st.lists(SPLIT_BY | st.characters(), max_size=60).map("".join))
def test_any_text_has_the_tokens_of_tiktoken_s_own_pattern(text: str) -> None:
    expected = plain_o200k().encode(text, disallowed_special=())

    assert load_o200k().encode(text, disallowed_special=()) == expected
    assert o200k_tokens(text) == len(expected)


def test_counting_needs_no_network_and_loads_tiktoken_only_when_it_counts() -> None:
    printed = run_python(
        NO_NETWORK
        + "from context_compaction.tokens.counter import counter_for\n"
        + "print('tiktoken' in sys.modules)\n"
        + "print(counter_for('gpt-4o').text('hello world'), 'tiktoken' in sys.modules)\n"
    )

    assert printed.splitlines() == ["False", "2 True"]


@pytest.mark.parametrize("damage", ["cut", "not gzip", "one rank less", "bits turned"])
def test_a_damaged_vocabulary_is_refused(tmp_path: Path, damage: str) -> None:
    shipped = SHIPPED.read_bytes()
    damaged = {
        "cut": shipped[:-1000],
        "not gzip": b"IQ== 0\n",
        "one rank less": gzip.compress(gzip.decompress(shipped).rpartition(b"\n")[0], 1),
        "bits turned": shipped[:500_000] + bytes(100) + shipped[500_100:],
    }[damage]
    path = tmp_path / "o200k_base.tiktoken.gz"
    path.write_bytes(damaged)

    with pytest.raises(VocabularyError, match=r"is damaged.*Reinstall"):
        read_ranks(path)


def test_without_the_vocabulary_counting_says_how_to_mend_it(tmp_path: Path) -> None:
    package = Path(context_compaction.__file__).parent
    shutil.copytree(
        package, tmp_path / "context_compaction", ignore=shutil.ignore_patterns("*.gz", "*.pyc")
    )
    printed = run_python(
        "from context_compaction.errors import VocabularyError\n"
        "from context_compaction.tokens.counter import counter_for\n"
        "try:\n"
        "    counter_for()\n"
        "except VocabularyError as error:\n"
        "    print('missing' in str(error), 'Reinstall' in str(error))\n",
        PYTHONPATH=str(tmp_path),
    )

    assert printed.splitlines() == ["True True"]

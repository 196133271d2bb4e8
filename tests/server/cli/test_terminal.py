"""What a transcript says never acts on the terminal of whoever looks at it."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mcp_server_compaction.cli import main

# A title, a bell, a C1 control sequence, backspaces, a turned direction, half a surrogate pair.
HOSTILE = "\x1b]0;owned\x07 \x9b2J hidden\x08\x08\x08 \u202eevil\u2066 \ud83d ordinary words"
ACTING = ("\x1b", "\x07", "\x9b", "\x08", "\u202e", "\u2066")

Run = Callable[..., str]


class Terminal(io.TextIOWrapper):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """What a terminal is sent by a command."""
    monkeypatch.setenv("MCP_COMPACTION_ARCHIVE", str(tmp_path / "archive"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def on_a_terminal(*words: str) -> str:
        sent = io.BytesIO()
        stream = Terminal(sent, "utf-8")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            patch.setattr(sys, "stderr", stream)
            with pytest.raises(SystemExit):
                main(words)
            stream.flush()
        return sent.getvalue().decode("utf-8", "surrogateescape")

    return on_a_terminal


def test_nothing_of_a_transcript_acts_on_a_terminal(on_a_terminal: Run, tmp_path: Path) -> None:
    session = tmp_path / "hostile.json"
    said = [{"role": "user", "content": HOSTILE}, {"role": "assistant", "content": "Fine."}]
    session.write_text(json.dumps(said), encoding="utf-8")
    assert "owned" not in on_a_terminal("import", str(session))
    for words in (["search", "ordinary"], ["sessions"], ["usage"]):
        shown = on_a_terminal(*words)
        assert shown.strip()
        assert not [mark for mark in ACTING if mark in shown], (words, shown)
    found = on_a_terminal("search", "ordinary")
    assert r"\x1b]0;owned\x07" in found
    pointer = next(line.split()[0] for line in found.splitlines() if "/" in line.split()[0])
    shown = on_a_terminal("read", pointer)
    assert "ordinary words" in shown
    assert not [mark for mark in ACTING if mark in shown]
    # As JSON it is what was said.
    hit = json.loads(on_a_terminal("search", "ordinary", "--json").partition("\n1 hit")[0])
    assert "\x1b]0;owned\x07" in hit["hits"][0]["snippet"]


def test_the_name_of_a_file_cannot_act_either(on_a_terminal: Run, tmp_path: Path) -> None:
    path = tmp_path / "a\x1b]0;owned\x07.json"
    path.write_text('{"no": "conversation"}', encoding="utf-8")
    shown = on_a_terminal("import", str(path))
    assert "owned" in shown
    assert "\x1b]0" not in shown

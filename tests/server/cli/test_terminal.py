"""Output on a terminal: control characters are escaped, and long lines are wrapped."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mcp_server_compaction.cli import main
from mcp_server_compaction.cli.terminal import say

# A title, a bell, a C1 control sequence, backspaces, a change of direction, a lone surrogate.
HOSTILE = "\x1b]0;owned\x07 \x9b2J hidden\x08\x08\x08 \u202eevil\u2066 \ud83d ordinary words"
CONTROLS = ("\x1b", "\x07", "\x9b", "\x08", "\u202e", "\u2066")

Run = Callable[..., str]


class Terminal(io.TextIOWrapper):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def run_on_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return the output that a command sends to a terminal."""
    monkeypatch.setenv("MCP_COMPACTION_ARCHIVE", str(tmp_path / "archive"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run_on_terminal(*words: str) -> str:
        sent = io.BytesIO()
        stream = Terminal(sent, "utf-8")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            patch.setattr(sys, "stderr", stream)
            with pytest.raises(SystemExit):
                main(words)
            stream.flush()
        return sent.getvalue().decode("utf-8", "surrogateescape")

    return run_on_terminal


def test_commands_escape_control_characters_of_archived_texts(
    run_on_terminal: Run, tmp_path: Path
) -> None:
    session = tmp_path / "hostile.json"
    messages = [{"role": "user", "content": HOSTILE}, {"role": "assistant", "content": "Fine."}]
    session.write_text(json.dumps(messages), encoding="utf-8")
    assert "owned" not in run_on_terminal("import", str(session))
    for words in (["search", "ordinary"], ["sessions"], ["usage"]):
        output = run_on_terminal(*words)
        assert output.strip()
        assert not [control for control in CONTROLS if control in output], (words, output)
    output = run_on_terminal("search", "ordinary")
    assert r"\x1b]0;owned\x07" in output
    pointer = next(line.split()[0] for line in output.splitlines() if "/" in line.split()[0])
    output = run_on_terminal("read", pointer)
    assert "ordinary words" in output
    assert not [control for control in CONTROLS if control in output]
    # JSON contains the original characters.
    hit = json.loads(run_on_terminal("search", "ordinary", "--json").partition("\nMatches: 1")[0])
    assert "\x1b]0;owned\x07" in hit["hits"][0]["snippet"]


def test_import_escapes_control_characters_of_a_file_name(
    run_on_terminal: Run, tmp_path: Path
) -> None:
    path = tmp_path / "a\x1b]0;owned\x07.json"
    path.write_text('{"no": "conversation"}', encoding="utf-8")
    output = run_on_terminal("import", str(path))
    assert "owned" in output
    assert "\x1b]0" not in output


def test_say_wraps_long_lines_between_words_when_the_output_is_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pointer = "transcript://0a1b2c3d-0000-4000-8000-123456789abc/messages/10-19"
    line = f"    Note: {'words ' * 20}read-only {pointer} {'more-words ' * 10}".rstrip()
    sent = io.BytesIO()
    stream = Terminal(sent, "utf-8")
    monkeypatch.setenv("COLUMNS", "80")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        say(line)
    lines = sent.getvalue().decode().splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()) == " ".join(line.split())
    assert all(wrapped.startswith("    ") for wrapped in lines)

"""What a transcript says never acts on the terminal of whoever looks at it."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "mcp_server_compaction"]
# A title, a bell, a C1 control sequence, backspaces, a turned direction, half a surrogate pair.
HOSTILE = "\x1b]0;owned\x07 \x9b2J hidden\x08\x08\x08 \u202eevil\u2066 \ud83d ordinary words"
ACTING = ("\x1b", "\x07", "\x9b", "\x08", "\u202e", "\u2066")


@pytest.fixture
def session(tmp_path: Path) -> Path:
    path = tmp_path / "hostile.json"
    said = [{"role": "user", "content": HOSTILE}, {"role": "assistant", "content": "Fine."}]
    path.write_text(json.dumps(said), encoding="utf-8")
    return path


def _on_a_terminal(words: list[str], environment: dict[str, str]) -> str:
    """What a terminal is sent by a command."""
    main, side = pty.openpty()
    with subprocess.Popen([*COMMAND, *words], stdout=side, stderr=side, env=environment) as process:
        os.close(side)
        shown = b""
        while True:
            try:
                part = os.read(main, 65_536)
            except OSError:  # the end, on Linux
                break
            if not part:
                break
            shown += part
        process.wait(timeout=150)
    os.close(main)
    return shown.decode("utf-8", "surrogateescape")


def test_nothing_of_a_transcript_acts_on_a_terminal(
    environment: dict[str, str], session: Path
) -> None:
    assert "owned" not in _on_a_terminal(["import", str(session)], environment)
    for words in (["search", "ordinary"], ["sessions"], ["usage"]):
        shown = _on_a_terminal(words, environment)
        assert shown.strip()
        assert not [mark for mark in ACTING if mark in shown], (words, shown)
    found = _on_a_terminal(["search", "ordinary"], environment)
    assert r"\x1b]0;owned\x07" in found
    pointer = next(line.split()[0] for line in found.splitlines() if "/" in line.split()[0])
    shown = _on_a_terminal(["read", pointer], environment)
    assert "ordinary words" in shown
    assert not [mark for mark in ACTING if mark in shown]


def test_what_is_piped_is_what_was_said(environment: dict[str, str], session: Path) -> None:
    subprocess.run([*COMMAND, "import", str(session)], env=environment, check=True, timeout=150)
    found = subprocess.run(
        [*COMMAND, "search", "ordinary", "--json"],
        env=environment,
        capture_output=True,
        check=True,
        timeout=150,
    )
    hit = json.loads(found.stdout)["hits"][0]
    assert "\x1b]0;owned\x07" in hit["snippet"]


def test_the_name_of_a_file_cannot_act_either(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "a\x1b]0;owned\x07.json"
    path.write_text('{"no": "conversation"}', encoding="utf-8")
    shown = _on_a_terminal(["import", str(path)], environment)
    assert "owned" in shown
    assert "\x1b]0" not in shown

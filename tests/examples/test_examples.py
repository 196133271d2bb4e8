"""Every example runs offline, as a user runs it, and does its task."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.http import serving
from tests.support.strict_answers import Says
from tests.support.strict_provider import serve_provider

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT_SECONDS = 120

# Read by every Python process at its start: a connection that leaves this machine fails.
OFFLINE = """
import sys

def refuse(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        if arguments[1][0] not in ("127.0.0.1", "::1"):
            raise RuntimeError(f"an example connects to {arguments[1]}")

sys.addaudithook(refuse)
"""


def run_example(name: str, tmp_path: Path, *arguments: object) -> str:
    """Run an example with its own home folder, and return its output."""
    (tmp_path / "sitecustomize.py").write_text(OFFLINE, encoding="utf-8")
    secret = {"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"}
    environment = {name: value for name, value in os.environ.items() if name not in secret}
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, arguments)],
        capture_output=True,
        cwd=tmp_path,
        env={**environment, "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)},
        encoding="utf-8",
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert run.stderr == ""
    assert run.returncode == 0
    return run.stdout


def test_program_fits_a_list_over_http(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        output = run_example("over_http.py", tmp_path, service.url, tmp_path / "archive/http-token")
    assert output == "unchanged [{'role': 'user', 'content': 'Hello.'}]\n"


@pytest.mark.parametrize("name", ["agent_loop_anthropic.py", "agent_loop_openai_format.py"])
def test_agent_loop_compacts_recovers_from_a_rejection_and_reads_back(
    name: str, tmp_path: Path
) -> None:
    lines = run_example(name, tmp_path).splitlines()
    rejected = lines.index("The provider rejected the prompt as too long.")
    assert "compacted to" in lines[rejected + 1]
    assert any("summarize" in line for line in lines[rejected + 2 :])
    assert any("calls search_transcript" in line for line in lines)
    # The quoted line had left the model's context.
    assert "Model: It says: Step 7 of the basket, as agreed in ticket 107." in lines
    assert lines[-1].startswith("o_")
    assert "is exactly the text" in lines[-1]


def test_library_example_reduces_a_real_session_to_its_target(tmp_path: Path) -> None:
    input_line, output_line, archive_line = run_example("library_use.py", tmp_path).splitlines()
    assert input_line.startswith("914 messages")
    tokens = int(output_line.split(" messages, ")[1].split()[0].replace(",", ""))
    assert 10_000 < tokens <= 40_000
    assert '{"role": "user"' in archive_line


def test_local_model_writes_the_summary(tmp_path: Path) -> None:
    text = "## Goal\n" + "- The themes of pi are loaded again when a file changes.\n" * 20
    with serve_provider(lambda _: Says(f"{text}## Next step\nGo on."), is_strict=False) as api:
        output = run_example("local_model.py", tmp_path, f"{api.url}/v1")
    assert "'writer': 'openai', 'name': 'qwen3:8b'" in output
    assert "The themes of pi are loaded again" in output
    [request] = api.requests
    assert len(request.body) < 32_000 * 4
    assert "authorization" not in request.headers


def test_background_example_replaces_only_prepared_messages(tmp_path: Path) -> None:
    input_line, output_line, same = run_example("background_compaction.py", tmp_path).splitlines()
    assert input_line.startswith("914 messages")
    assert int(output_line.split()[0]) in range(214, 400)
    assert same.endswith("True")


def test_examples_are_all_tested() -> None:
    programs = {
        path.name
        for path in EXAMPLES.glob("*.py")
        if "__main__" in path.read_text(encoding="utf-8")
    }
    assert programs == {
        "agent_loop_anthropic.py",
        "agent_loop_openai_format.py",
        "background_compaction.py",
        "library_use.py",
        "local_model.py",
        "over_http.py",
    }

"""The adapters for agent frameworks, with the real packages: `pip install --group adapters`."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.examples.test_examples import EXAMPLES, run_example
from tests.server.helpers import output

pytestmark = pytest.mark.slow

# Each program, and a package that it needs.
ADAPTERS = {
    "langchain_agent.py": "langchain_openai",
    "langgraph_agent.py": "langgraph",
    "openai_agents_agent.py": "agents",
    "pydantic_ai_agent.py": "pydantic_ai",
}
CLAUDE = "claude_agent_sdk_agent.py"

# Hands one tool result to the hook that the adapter gives to the SDK.
ASK_HOOK = """
import json, sys
import anyio
sys.path.insert(0, sys.argv[1])
from claude_agent_sdk import ClaudeAgentOptions
from claude_agent_sdk_agent import with_compaction

options = with_compaction(ClaudeAgentOptions())
[matcher] = options.hooks["PostToolUse"]
print(json.dumps(anyio.run(matcher.hooks[0], json.load(sys.stdin), None, {"signal": None})))
"""

# Calls a tool with LangChain's adapters, whose MCP client is of version 1.
CALL_WITH_LANGCHAIN = """
import asyncio, sys
from langchain_mcp_adapters.client import MultiServerMCPClient

async def main():
    arguments = ["-m", "mcp_server_compaction", "--archive", sys.argv[2]]
    server = {"command": sys.argv[1], "args": arguments, "transport": "stdio"}
    tools = await MultiServerMCPClient({"compaction": server}).get_tools()
    [persist] = [tool for tool in tools if tool.name == "persist_large_output"]
    print(await persist.ainvoke({"output": "line\\n" * 9_000}))

asyncio.run(main())
"""


def needs(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install --group adapters")


@pytest.mark.parametrize("name", ADAPTERS)
def test_framework_with_its_full_history_sends_a_list_that_fits(name: str, tmp_path: Path) -> None:
    needs(ADAPTERS[name])
    lines = run_example(f"adapters/{name}", tmp_path).splitlines()
    # The line is from a source file that the context of the model no longer contained.
    assert "Model: It says: Step 7 of the basket, as agreed in ticket 107." in lines
    calls, full_lists, compacted_lists = (
        int(part.split()[0]) for part in lines[-1].replace(":", ",").split(",")
    )
    assert calls >= 17
    assert full_lists <= 2
    assert compacted_lists > 0


def test_hooks_of_the_claude_agent_sdk_shorten_a_large_output(tmp_path: Path) -> None:
    needs("claude_agent_sdk")
    text = output(lines=3_000)
    payload: dict[str, Any] = {
        "session_id": "s",
        "transcript_path": str(tmp_path / "s.jsonl"),
        "cwd": str(tmp_path),
        "hook_event_name": "PostToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "make"},
        "tool_response": {"stdout": text, "stderr": "", "interrupted": False, "isImage": False},
        "tool_use_id": "toolu_1",
    }
    environment = {**os.environ, "MCP_COMPACTION_ARCHIVE": str(tmp_path / "archive")}
    done = subprocess.run(
        [sys.executable, "-c", ASK_HOOK, str(EXAMPLES / "adapters")],
        input=json.dumps(payload),
        capture_output=True,
        text=True,
        env=environment,
        timeout=150,
        check=True,
    )
    changed = json.loads(done.stdout)["hookSpecificOutput"]["updatedToolOutput"]
    assert "read_persisted_output o_" in changed["stdout"]
    assert len(changed["stdout"]) < len(text) / 10


def test_adapters_are_all_tested() -> None:
    programs = {
        path.name
        for path in (EXAMPLES / "adapters").glob("*.py")
        if "__main__" in path.read_text(encoding="utf-8")
    }
    assert programs == {*ADAPTERS, CLAUDE}


def test_langchain_mcp_adapters_call_the_tools_from_an_environment_of_their_own(
    tmp_path: Path,
) -> None:
    """They need an older `mcp` than the server: MCP_TEST_LANGCHAIN names a Python with them."""
    python = os.environ.get("MCP_TEST_LANGCHAIN")
    if python is None:
        pytest.skip("MCP_TEST_LANGCHAIN names no Python with langchain-mcp-adapters")
    done = subprocess.run(
        [python, "-c", CALL_WITH_LANGCHAIN, sys.executable, str(tmp_path / "archive")],
        capture_output=True,
        text=True,
        timeout=150,
        check=True,
    )
    assert '"persisted":true' in done.stdout

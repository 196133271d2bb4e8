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
    assert calls >= 16
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
    assert changed["stdout"].startswith('<persisted-output id="o_')
    assert len(changed["stdout"]) < len(text) / 10


# Calls LangChain's agent without `await`, once inside an event loop, with a model that counts.
CALL_BLOCKING = """
import asyncio, sys
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from mcp_server_compaction.adapters.langchain import CompactionMiddleware

class Model(GenericFakeChatModel):
    def bind_tools(self, tools, **_):
        print(sorted(tool.name for tool in tools))
        return self

    def _generate(self, messages, *others, **more):
        print(sum(len(str(message.content)) for message in messages))
        return super()._generate(messages, *others, **more)

model = Model(messages=iter([AIMessage("one"), AIMessage("two")]))
middleware = CompactionMiddleware(archive=sys.argv[1], context_window=20_000)
agent = create_agent(model, [], middleware=[middleware])
messages = [{"role": "user", "content": f"{n}: " + "word " * 2_000} for n in range(9)]
messages = [one for user in messages for one in (user, {"role": "assistant", "content": "yes"})]
messages.append({"role": "user", "content": "And now?"})
print(agent.invoke({"messages": messages})["messages"][-1].content)

async def main():
    print(agent.invoke({"messages": messages})["messages"][-1].content)

asyncio.run(main())
"""


def test_langchain_adapter_works_without_await_and_adds_the_archive_tools(tmp_path: Path) -> None:
    needs("langchain")
    done = subprocess.run(
        [sys.executable, "-c", CALL_BLOCKING, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=150,
        check=True,
    )
    names, first, answer, *again = done.stdout.splitlines()
    assert names == "['read_persisted_output', 'search_transcript']"
    assert int(first) < 80_000  # of 90,000
    assert answer == "one"
    assert again == [names, first, "two"]  # the same list again


def imported(module: str, *folders: Path) -> str:
    """Return the error of an import, with folders before all others on the path."""
    path = os.pathsep.join([*map(str, folders), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", f"import mcp_server_compaction.adapters.{module}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=150,
        check=False,
    )
    return done.stderr


def test_adapter_names_the_version_of_mcp_that_its_framework_needs(tmp_path: Path) -> None:
    folder = tmp_path / "langgraph-9.0.dist-info"
    folder.mkdir()
    requires = "Requires-Dist: mcp[cli]<2,>=1.9\nRequires-Dist: mcp>9 ; extra == 'x'\n"
    metadata = f"Metadata-Version: 2.1\nName: langgraph\nVersion: 9.0\n{requires}"
    (folder / "METADATA").write_text(metadata, encoding="utf-8")
    error = imported("langgraph", tmp_path)
    assert "langgraph needs mcp<2,>=1.9" in error
    assert "its own environment" in error


def test_adapter_names_the_command_that_installs_its_framework() -> None:
    if importlib.util.find_spec("langgraph") is not None:
        pytest.skip("langgraph is installed")
    assert "Run: pip install langgraph" in imported("langgraph")


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

# pyright: basic, reportMissingImports=false
"""Claude Agent SDK: Claude Code keeps the list itself, so it gets the server and its hooks.

Large outputs become previews with pointers before the model sees them, the session is archived as
it grows, and the model has the tools to search and read the removed content.

    pip install claude-agent-sdk
    python examples/adapters/claude_agent_sdk_agent.py "What does this project do?"
"""

import json
import subprocess
import sys
from dataclasses import replace

import anyio
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, ResultMessage, query

PROGRAM = [sys.executable, "-m", "mcp_server_compaction"]
HOOK_SECONDS = 30


# --8<-- [start:adapter]
def with_compaction(options: ClaudeAgentOptions) -> ClaudeAgentOptions:
    """The options with the server, and with the hooks that `install claude-code` would register."""

    async def hook(payload, _tool_use_id, _context):
        command = [*PROGRAM, "hook", payload["hook_event_name"], "--host", "claude-code"]
        with anyio.fail_after(HOOK_SECONDS):
            done = await anyio.run_process(
                command, input=json.dumps(payload).encode(), stderr=subprocess.DEVNULL
            )
        return json.loads(done.stdout or b"{}")

    events = ("PostToolUse", "UserPromptSubmit", "PreCompact", "Stop")
    server = {"type": "stdio", "command": PROGRAM[0], "args": PROGRAM[1:]}
    return replace(
        options,
        mcp_servers={"compaction": server},
        hooks={event: [HookMatcher(hooks=[hook])] for event in events},
    )
    # --8<-- [end:adapter]


async def main() -> None:
    """Ask one question."""
    options = with_compaction(ClaudeAgentOptions(allowed_tools=["Bash", "Read"]))
    async for message in query(prompt=sys.argv[1], options=options):
        if isinstance(message, ResultMessage):
            print(message.result)


if __name__ == "__main__":
    anyio.run(main)

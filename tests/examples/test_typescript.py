"""The TypeScript client, with npm's SDKs: type-checked, and then run on the real server."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import anyio
import pytest
from mcp_server_compaction.client import CompactionClient
from mcp_server_compaction.config import Config

from tests.examples.test_examples import EXAMPLES
from tests.server.helpers import Json, connect
from tests.server.test_client import turn, without_places

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

INSTALL_SECONDS = 180
RUN_SECONDS = 120
WINDOW = 12_000
STEPS = 24

# Runs the conversation of `_python_lists`, and loses every seventh reply.
LOOP = """
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { CompactionClient } from "./build/compaction_client.js";
const { command, args, turns, keepsHistory, window } = JSON.parse(process.env.SETTINGS);
const server = new Client({ name: "loop", version: "1" });
await server.connect(new StdioClientTransport({ command, args, env: process.env }));
let calls = 0;
const sent = [];
const line = {
  async callTool(call) {
    const result = await server.callTool(call);
    sent.push("messages" in call.arguments ? "all" : "new");
    if (++calls % 7 === 0) throw new Error("the connection broke");
    return result;
  },
};
const wishes = { session_id: "s", context_window: window };
const compaction = new CompactionClient(line, wishes);
let messages = [{ role: "user", content: "Find out why the test fails." }];
const lists = [];
for (const turn of turns) {
  messages = [...messages, ...turn];
  let fitted = null;
  try { fitted = await compaction.fit(messages); } catch (error) { void error; }
  lists.push(fitted);
  if (fitted !== null && !keepsHistory) messages = fitted;
}
console.log(JSON.stringify({ lists, sent }));
await server.close();
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples with their packages, compiled."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    made = tmp_path_factory.mktemp("typescript")
    for path in (EXAMPLES / "typescript").glob("*.*"):
        if path.is_file():
            shutil.copy(path, made)
    arguments = [npm, "install", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(
        arguments, cwd=made, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
    )
    if done.returncode:
        pytest.skip(f"npm could not install the packages: {done.stderr.strip()[-300:]}")
    run([str(made / "node_modules/.bin/tsc")], made, {})
    return made


def run(command: Sequence[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("keeps_history", [False, True])
def test_typescript_client_returns_the_lists_of_the_python_client(
    folder: Path, tmp_path: Path, keeps_history: bool
) -> None:
    turns = [turn(number, (2, 40, 90)[number % 3]) for number in range(STEPS)]
    archive = tmp_path / "typescript"
    settings = {
        "command": sys.executable,
        "args": ["-m", "mcp_server_compaction", "--archive", str(archive)],
        "turns": turns,
        "keepsHistory": keeps_history,
        "window": WINDOW,
    }
    (folder / "loop.mjs").write_text(LOOP, encoding="utf-8")
    typescript = json.loads(run(["node", "loop.mjs"], folder, {"SETTINGS": json.dumps(settings)}))
    python_lists, sent = anyio.run(_python_lists, tmp_path / "python", turns, keeps_history)
    assert [without_places(fitted) for fitted in typescript["lists"]] == [
        *map(without_places, python_lists)
    ]
    assert typescript["sent"] == sent
    assert sent.count("new") > STEPS * 2 / 3


async def _python_lists(
    archive: Path, turns: list[list[Json]], keeps_history: bool
) -> tuple[list[list[Json] | None], list[str]]:
    sent: list[str] = []
    async with connect(Config(archive_folder=archive)) as client:

        async def call_tool(name: str, arguments: Json) -> object:
            result = await client.call_tool(name, arguments)
            sent.append("all" if "messages" in arguments else "new")
            if len(sent) % 7 == 0:
                raise ConnectionError
            return result

        compaction = CompactionClient(call_tool, session_id="s", context_window=WINDOW)
        messages: list[Json] = [{"role": "user", "content": "Find out why the test fails."}]
        lists: list[list[Json] | None] = []
        for new in turns:
            messages = [*messages, *new]
            try:
                fitted = await compaction.fit(messages)
            except ConnectionError:
                fitted = None
            lists.append(fitted)
            if fitted is not None and not keeps_history:
                messages = fitted
    return lists, sent


def test_vercel_ai_sdk_sends_a_list_that_fits(folder: Path, tmp_path: Path) -> None:
    sys.path.insert(0, str(EXAMPLES))
    try:
        project, scripted = map(import_module, ("demo_project", "scripted_model"))
    finally:
        sys.path.remove(str(EXAMPLES))
    with scripted.serve(scripted.ScriptedModel(scripted.demo_script())) as url:
        environment = {
            "MODEL_URL": f"{url}/v1",
            "SERVER_COMMAND": sys.executable,
            "SERVER_ARGUMENTS": f"-m mcp_server_compaction --archive {tmp_path / 'archive'}",
            "FILES": json.dumps(dict(project.FILES)),
            "QUESTIONS": json.dumps([project.TASK, project.FOLLOW_UP]),
        }
        lines = run(["node", "build/vercel_agent.js"], folder, environment).splitlines()
    assert "Model: It says: Step 7 of the basket, as agreed in ticket 107." in lines
    assert "messages replace" in lines[-1]

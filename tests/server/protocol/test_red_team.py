"""Cases of `tests.support.red_team` through the tools of a server process, as hosts call them."""

import json
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp_server_compaction.config import Config
from mcp_types import TextResourceContents

from tests.server.helpers import Json, answer_of, connect
from tests.support.red_team import Case, as_file, cases
from tests.support.small import user_words

pytestmark = pytest.mark.slow

CASES = list(cases())


async def receipts_of(client: Client, session_id: str) -> list[Json]:
    """The receipts of a session, as the resource has them."""
    resource = await client.read_resource(f"transcript://{session_id}/receipts")
    [content] = resource.contents
    assert isinstance(content, TextResourceContents)
    return [json.loads(line) for line in content.text.splitlines()]


async def test_attacks_never_become_pins_or_rules_through_the_tools(
    config: Config, files: Path
) -> None:
    # One case of each channel; the library's test has them all.
    chosen = CASES[:: len(CASES) // 30]
    folder = anyio.Path(files)
    reached: list[str] = []
    async with connect(config) as client:
        for number, case in enumerate(chosen):
            answer = await answered(client, case, f"case-{number}", folder)
            receipts = await receipts_of(client, answer["session_id"])
            if case.canary in json.dumps([receipt["pins"] for receipt in receipts]):
                reached.append(case.name)
            block, _, rest = (answer["summary"] or "").partition("</pinned>")
            if case.canary in (block if rest else "") + str(user_words(answer["summary"] or "")):
                reached.append(case.name)
    assert {case.host.is_file for case in chosen} == {True, False}
    assert reached == []


async def answered(client: Client, case: Case, session_id: str, folder: anyio.Path) -> Json:
    """Compact `case` as a file or as messages, whichever its host passes."""
    arguments: Json = {"mode": "full", "session_id": session_id}
    if case.host.is_file:
        path = folder / f"{session_id}.jsonl"
        await path.write_bytes(as_file(case))
        arguments["transcript_path"] = str(path)
    else:
        arguments |= {"messages": case.payload, "options": {"format": case.host.format}}
    return answer_of(await client.call_tool("compact_messages", arguments))

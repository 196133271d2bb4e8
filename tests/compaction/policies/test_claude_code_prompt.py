"""The prompt of policy claude-code asks for an analysis and nine sections.

The source is the question "what does the compression prompt look like" in S3.
"""

import re
from pathlib import Path

import anyio
import pytest
from context_compaction import AnthropicModel, CompactRequest, CompactResult, compact, open_archive

from tests.support.json_types import Json
from tests.support.story import GOAL, RULE, story
from tests.support.strict_answers import Says
from tests.support.strict_provider import Provider, Reply, Request, Script, serve_provider
from tests.support.strict_rules import Fails

# Importing the provider's SDK takes long on a busy machine.
pytestmark = pytest.mark.timeout(120)

SECTIONS = [
    "Primary request and intent",
    "Key technical concepts",
    "Files and code sections",
    "Errors and fixes",
    "Problem solving",
    "All user messages",
    "Pending tasks",
    "Current work",
    "Next step",
]
CONTENTS = {
    "Primary request and intent": f'The user wants: "{GOAL}".',
    "Files and code sections": "billing/round.py holds round_half_even; ticket INV-4711; 0.005.",
    "All user messages": f'- "{RULE}"',
    "Next step": "Write the release note.",
}
SUMMARY = "\n".join(f"## {name}\n{CONTENTS.get(name, '(none)')}" for name in SECTIONS)
ANSWER = f"<analysis>\nsecret plan: first billing.\n</analysis>\n<summary>\n{SUMMARY}\n</summary>"
REQUEST = CompactRequest(
    mode="full", policy="claude-code", target_tokens=8_000, session_id="nine-sections"
)


async def summarized(
    folder: Path,
    request: CompactRequest,
    messages: list[Json] | None = None,
    script: Script = lambda _: Says(ANSWER),
) -> tuple[CompactResult, Provider]:
    with anyio.fail_after(150), serve_provider(script) as api:
        async with open_archive(folder / "archive") as archive:
            model = AnthropicModel(model="claude-haiku-5-5", api_key="test-key", base_url=api.url)
            payload = messages or story()
            return await compact(payload, request, archive=archive, model=model), api


def headings(text: str) -> list[str]:
    return re.findall(r"^## (.+)$", text, re.MULTILINE)


def assert_nine_sections(system: str) -> None:
    assert headings(system) == SECTIONS
    assert system.index("<analysis>") < system.index("<summary>")
    first, *_, last = system.splitlines()
    assert "no tools" in first
    assert "no tools" in last
    assert "untrusted data" in system


async def test_prompt_asks_for_an_analysis_and_nine_sections(tmp_path: Path) -> None:
    _, api = await summarized(tmp_path, REQUEST)
    (request,) = api.bodies
    assert_nine_sections(request["system"][0]["text"])


async def test_analysis_is_removed_and_nine_sections_stay(tmp_path: Path) -> None:
    result, _ = await summarized(tmp_path, REQUEST)
    summary = result.summary or ""
    assert result.receipt["writer"] == "anthropic"
    assert headings(summary)[:9] == SECTIONS
    assert "secret plan" not in summary
    assert "<summary>" not in summary


async def test_too_long_record_is_retried_without_its_oldest_groups(tmp_path: Path) -> None:
    messages = story(turns=40, result_lines=40)

    def script(request: Request) -> Reply:
        if len(request.json["messages"][0]["content"]) > 60_000:
            return Fails(413, "request_too_large", "Request exceeds the maximum size")
        return Says(ANSWER)

    result, api = await summarized(tmp_path, REQUEST, messages, script)
    (route,) = result.receipt["model"]["routes"]
    dropped = re.fullmatch(r"without the oldest (\d+) of (\d+) groups of messages", route)
    assert dropped is not None
    assert 0 < int(dropped[1]) < int(dropped[2])
    shown = api.bodies[-1]["messages"][0]["content"]
    parts = re.findall(r'<part n="\d+" from="(\w+)">', shown)
    assert parts[0] == "assistant", "a group begins with an answer of the model"
    assert "billing/module_0.py" not in shown
    assert "billing/module_39.py" in shown
    assert "characters omitted" not in shown, "the remaining messages are complete"
    assert 2 <= len(api.bodies) <= 3

"""Policy timeline: cut points, digest, cache markers and later summaries of S4."""

import json

import pytest
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest

from tests.support.json_types import Json
from tests.support.policy_tables import CHARS4, SHORT, chars, shape, timeline
from tests.support.promises import temporary_archive
from tests.support.small import answered, assistant, text, user

# The paper keeps 0.7 of the window.
RECENT_TOKENS = 7_000


def turn(tokens: int, letter: str) -> list[Json]:
    """Return a turn of `tokens` tokens in all: a request and its answer."""
    return [user(chars(tokens - 10, letter)), assistant("Done, yes.")]


@pytest.mark.parametrize(
    ("newest_tokens", "recent_turns"),
    [(RECENT_TOKENS - 6_000 - 1, 7), (RECENT_TOKENS - 6_000, 7), (RECENT_TOKENS - 6_000 + 1, 6)],
)
async def test_turn_stays_when_recent_messages_are_exactly_70_percent(
    newest_tokens: int, recent_turns: int
) -> None:
    payload = [m for n in range(8) for m in turn(1_000, chr(97 + n))]
    payload += turn(newest_tokens, "z")
    compaction = await timeline(payload, settings={"keep_recent_turns": 0})
    assert compaction.messages[1:] == payload[-2 * recent_turns :]


async def test_cut_prefers_a_turn_boundary_to_a_message_boundary() -> None:
    long_turn = [user("Work.")]
    for number in range(4):
        long_turn += answered(f"c{number}", "bash", chars(700), command=f"run {number}")
    long_turn.append(assistant("Done."))
    payload = [*long_turn, *(m for n in range(6) for m in turn(1_050, chr(97 + n))), user("Next.")]
    compaction = await timeline(payload, settings={"keep_recent_turns": 0})
    # 0.7 of the window would include the last call of the long turn.
    assert compaction.messages[1:] == payload[len(long_turn) :]


async def test_cut_inside_a_turn_is_at_a_message_boundary_and_never_at_a_result() -> None:
    payload = [user("Refactor.")]
    for number in range(10):
        payload += answered(f"c{number}", "bash", chars(900), command=f"run {number}")
    compaction = await timeline(payload)
    assert shape(compaction.messages)[:3] == ["summary", "call", "result"]


MEMORY = """found in docs/plan.md (0.93, turn_id: "turn_7"), and 3.14 times in
{"path": "notes/2026/port.txt", "turn_ids": ["turn_7", "turn_9"]}"""


async def test_digest_lists_writes_patches_runs_and_memory_reads() -> None:
    payload = [
        user("Work."),
        *answered("a", "write_file", "ok", path="src/new.py", content=chars(200)),
        *answered("b", "edit_file", "ok", path="src/old.py", old_text="1", new_text="2"),
        *answered("c", "bash", "Exit code: 1\nFAILED tests/test_old.py", command="pytest -q"),
        *answered("d", "read_file", chars(300), path="docs/plan.md"),
        *answered("e", "memory_search", MEMORY, query="plan"),
        assistant("Done with that."),
        *turn(2_000, "y"),
        user("Next."),
    ]
    compaction = await timeline(payload, mode="full")
    digest = compaction.receipt["digest"]
    files = digest["files"]
    assert (files["read"], files["written"], files["edited"]) == (
        ["docs/plan.md"],
        ["src/new.py"],
        ["src/old.py"],
    )
    assert digest["runs"][0]["command"] == "pytest -q"
    assert digest["runs"][0]["failed"]
    assert digest["memory_reads"] == [
        {
            "call": "memory_search(query=plan)",
            "paths": ["docs/plan.md", "notes/2026/port.txt"],
            "turn_ids": ["turn_7", "turn_9"],
        }
    ]


async def test_digest_lists_artifacts_with_path_type_visibility_and_sources() -> None:
    data = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    picture = {"type": "image", "source": data}
    paper = {
        "type": "document",
        "title": "offer.pdf",
        "source": {"type": "url", "url": "https://a.example/1"},
    }
    chart = {"path": "out/chart.svg", "mime": "image/svg+xml", "visibility": "external"}
    output = json.dumps({"artifacts": [{**chart, "sources_used": [3, "S4"]}], "ok": True})
    payload = [
        user([text("Compare."), paper]),
        *answered("a", "read_file", [picture], path="img/plan.png"),
        *answered("b", "render", output, kind="chart"),
        *answered("c", "write_file", "ok", path="out/report.html", content="<p>", sources=["S1"]),
        *answered("d", "write_file", "ok", path="src/a.py", content="x = 1"),
        assistant("Compared."),
        *turn(2_000, "y"),
        user("Next."),
    ]
    compaction = await timeline(payload, mode="full")
    assert compaction.receipt["digest"]["artifacts"] == [
        artifact("out/report.html", "text/html", "user", "S1"),
        artifact("offer.pdf", "application/pdf", "user"),
        artifact("img/plan.png", "image/png", "model", "read_file(img/plan.png)"),
        artifact("out/chart.svg", "image/svg+xml", "external", "3", "S4"),
    ]


async def test_digest_lists_hidden_blocks_with_their_replacement_text() -> None:
    meta = {"hidden": True, "replacement_text": "[screenshot of the old page]"}
    partial = user([{**text("A long log."), "meta": meta}, text("Look at it.")])
    visible = {**assistant("Seen."), "meta": {"hidden": False, "replacement_text": "no"}}
    full = {**user("All of this is hidden."), "meta": {"hidden": True}}
    payload = [
        partial,
        visible,
        full,
        assistant("Ok."),
        *turn(2_000, "y"),
        user("Next."),
    ]
    compaction = await timeline(payload, mode="full")
    assert compaction.receipt["digest"]["hidden"] == [
        "[screenshot of the old page]", "hidden by the host, without a replacement text",
    ]  # fmt: skip


def artifact(path: str, media_type: str, visibility: str, *sources: str) -> Json:
    return {
        "path": path,
        "media_type": media_type,
        "visibility": visibility,
        "sources": list(sources),
    }


async def test_cache_markers_never_exceed_the_hosts_number() -> None:
    marker = {"type": "ephemeral"}
    payload = [m for n in range(18) for m in turn(510, chr(97 + n))]
    for index in (0, 2, 4, len(payload) - 2):
        payload[index] = user([{**text(chars(500)), "cache_control": marker}])
    compaction = await timeline(payload)
    assert 2 <= json.dumps(compaction.messages).count("cache_control") <= 4


async def test_visible_stream_starts_with_the_last_summary_and_includes_the_earlier_one() -> None:
    request = CompactRequest(
        policy="timeline", format="anthropic", session_id="s", settings={**CHARS4, **SHORT},
        context_window=10_000, max_output_tokens=1_000,
    )  # fmt: skip
    rule = "Never deploy on a Friday."
    payload = [user(rule), assistant("Yes."), *turn(510, "a") * 18]
    async with temporary_archive() as archive:
        first = await compact(payload, request, archive=archive)
        more = turn(510, "b") * 8
        second = await compact([*first.messages, *more], request, archive=archive)
    for result in (first, second):
        assert shape(result.messages)[0] == "summary"
        assert shape(result.messages).count("summary") == 1
        assert rule in json.dumps(result.messages[0])

"""Policy claude-code, from the rules of S0 and the production constants in S3."""

import json

import pytest
from context_compaction.errors import SettingsError
from context_compaction.policies import POLICIES

from tests.support.json_types import Json
from tests.support.policy_tables import (
    archived_marker,
    chars,
    long_talk,
    results_of,
    shape,
    steps,
    under,
)
from tests.support.small import answered, assistant, text, user

CLEARED = "[Old tool result content cleared]"
WINDOW = {"context_window": 200_000, "max_output_tokens": 16_384}


@pytest.mark.parametrize(
    ("context_window", "max_output_tokens", "threshold"),
    [
        (200_000, 16_384, 170_616),
        (200_000, 19_999, 167_001),
        (200_000, 20_000, 167_000),
        (200_000, 20_001, 167_000),
        (200_000, 64_000, 167_000),
        (1_000_000, 128_000, 967_000),
        (65_535, 16_384, 36_151),
        (64_000, 16_384, 34_616),
        (32_000, 4_096, 14_904),
        # Less than a quarter would remain, so the reserve has at most 30 %, the buffer 20 %.
        (32_000, 16_384, 15_888),
        (16_000, 16_384, 7_945),
    ],
)
async def test_threshold_is_window_minus_output_reserve_minus_13_000(
    context_window: int, max_output_tokens: int, threshold: int
) -> None:
    result = await under(
        "claude-code",
        [user("hi")],
        context_window=context_window,
        max_output_tokens=max_output_tokens,
    )
    assert result.tokens.trigger == threshold


@pytest.mark.parametrize("policy", ["claude-code", "default"])
async def test_named_reserve_and_buffer_are_never_reduced(policy: str) -> None:
    named = {"buffer_tokens": 13_000, "output_reserve_cap_tokens": 20_000}
    window: Json = {"context_window": 32_000, "max_output_tokens": 16_384}
    result = await under(policy, [user("hi")], settings=named, **window)
    assert (result.tokens.trigger, result.warnings) == (2_616, ())
    with pytest.raises(SettingsError, match="leaves nothing for the conversation"):
        await under(policy, [user("hi")], settings=named, **window | {"context_window": 29_384})


async def test_warning_is_given_when_a_small_window_has_no_room_for_an_answer() -> None:
    result = await under(
        "claude-code", [user("hi")], context_window=32_000, max_output_tokens=16_384
    )
    [warning] = result.warnings
    assert warning.startswith("Only 9765 of 16384 tokens are reserved for the response")
    assert "output_reserve_cap_tokens" in warning


@pytest.mark.parametrize(
    ("tokens", "status"),
    [(170_615, "unchanged"), (170_616, "unchanged"), (170_617, "compacted")],
)
async def test_auto_compact_starts_above_the_threshold(tokens: int, status: str) -> None:
    result = await under("claude-code", long_talk(tokens), **WINDOW)
    assert result.tokens.before == tokens
    assert result.status == status


async def test_the_production_estimator_multiplies_by_four_thirds() -> None:
    payload = [user("x" * 12_000)]
    plain = await under("claude-code", payload, **WINDOW)
    padded = await under("claude-code", payload, settings={"estimator": "chars/3"}, **WINDOW)
    assert (plain.tokens.before, padded.tokens.before) == (3_014, 4_014)


async def test_acknowledged_summary_replaces_everything_except_the_open_request() -> None:
    payload = long_talk(170_617)
    result = await under("claude-code", payload, **WINDOW)
    assert shape(result.messages) == ["summary", "acknowledgement", "user"]
    assert result.messages[-1] is payload[-1]


async def test_finished_conversation_becomes_summary_and_acknowledgement() -> None:
    payload = [user("Say hi to " + chars(500)), assistant("hi " * 300)]
    result = await under("claude-code", payload, mode="full", **WINDOW)
    assert shape(result.messages) == ["summary", "acknowledgement"]


# Ten old results of 2 000 tokens are exactly the minimum; three newer results stay.
OLD, NEW = [chars(2_000, letter) for letter in "abcdefghij"], [chars(2_000, c) for c in "xyz"]


def finished_turns(turns: int) -> list[Json]:
    """Return turns with 20 000 tokens of small results each, and then a new request."""
    talk: list[Json] = []
    for turn in range(turns):
        talk.append(user(f"Look into part {turn}."))
        for n in range(20):
            text = f"{turn}.{n} " + chars(990)
            talk += answered(f"c{turn}_{n}", "bash", text, command=f"run {turn} {n}")
        talk.append(assistant(f"Part {turn} is fine."))
    return [*talk, user("And all together?")]


async def test_finished_turns_are_collapsed_before_a_summary_replaces_everything() -> None:
    payload = finished_turns(9)
    result = await under("claude-code", payload, **WINDOW)
    assert [layer.name for layer in result.layers] == ["collapse"]
    assert result.fits
    lines = [m["content"] for m in result.messages if str(m["content"]).startswith("[Finished")]
    assert len(lines) == 8, "all but the newest"
    assert lines[0].startswith(
        "[Finished sub-task: work on the request above; 40 messages; calls bash x20; ran run 0 15, "
    )
    texts = [m for m in payload if isinstance(m["content"], str)]
    assert [m for m in result.messages if m in texts] == texts, "requests and answers stay"


async def test_the_layers_run_in_the_order_budget_snip_micro_collapse_summary() -> None:
    layers = POLICIES["claude-code"].layers
    order = ["persist", "snip", "microcompact", "collapse", "summarize"]
    assert [layer for layer in layers if layer in order] == order


async def test_old_results_are_cleared_on_any_turn_once_that_saves_20_000_tokens() -> None:
    result = await under("claude-code", steps([*OLD, *NEW]), **WINDOW)
    assert results_of(result.messages) == [
        *(f"{CLEARED} {archived_marker(old)}" for old in OLD),
        *NEW,
    ]


async def test_results_of_19_999_tokens_are_not_cleared() -> None:
    payload = steps([chars(1_999, "a"), *OLD[1:], *NEW])
    result = await under("claude-code", payload, **WINDOW)
    assert result.status == "unchanged"
    assert all(a is b for a, b in zip(payload, result.messages, strict=True))


async def test_newest_three_results_and_all_calls_stay() -> None:
    payload = steps([*OLD, *NEW])
    result = await under("claude-code", payload, **WINDOW)
    assert results_of(result.messages)[-3:] == NEW
    calls = [message for message in payload if message["role"] == "assistant"]
    assert [message for message in result.messages if message["role"] == "assistant"] == calls


@pytest.mark.parametrize(("tokens", "is_cleared"), [(999, False), (1_000, False), (1_001, True)])
async def test_result_is_cleared_when_it_has_more_than_1_000_tokens(
    tokens: int, is_cleared: bool
) -> None:
    border = chars(tokens, "q")
    result = await under("claude-code", steps([border, *OLD, *NEW]), **WINDOW)
    expected = f"{CLEARED} {archived_marker(border)}" if is_cleared else border
    assert results_of(result.messages)[0] == expected


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("bash", {"command": "ls"}),
        ("read_file", {"path": "a.py"}),
        ("write_file", {"path": "a.py", "content": "1"}),
        ("edit_file", {"path": "a.py", "old_text": "1", "new_text": "2"}),
        ("glob", {"pattern": "*.py"}),
        ("grep", {"pattern": "x"}),
        ("list_dir", {"path": "."}),
        ("notebook_edit", {"path": "a.ipynb"}),
    ],
)
async def test_the_eight_tools_are_compactable(name: str, arguments: dict[str, str]) -> None:
    payload = steps([*OLD, *NEW], name=name, **arguments)
    result = await under("claude-code", payload, **WINDOW)
    assert sum(CLEARED in content for content in results_of(result.messages)) == len(OLD)


@pytest.mark.parametrize("name", ["web_fetch", "task", "mcp__tracker__get_ticket"])
async def test_results_of_other_tools_stay_and_do_not_count_as_recent(name: str) -> None:
    payload = steps([*OLD, *NEW])
    for number in range(3):
        payload += answered(f"o{number}", name, chars(3_000, "w"), id=str(number))
    result = await under("claude-code", payload, **WINDOW)
    contents = results_of(result.messages)
    assert contents[len(OLD) :] == [*NEW, *[chars(3_000, "w")] * 3]
    assert all(CLEARED in content for content in contents[: len(OLD)])


async def test_result_with_a_list_of_parts_is_cleared() -> None:
    payload = steps([*OLD, *NEW])
    payload[2]["content"][0]["content"] = [text(OLD[0])]
    result = await under("claude-code", payload, **WINDOW)
    assert json.dumps(results_of(result.messages)[0]).count(CLEARED) == 1


@pytest.mark.parametrize(("idle_seconds", "is_cleared"), [(3_600, False), (3_601, True)])
async def test_after_60_minutes_old_results_are_cleared_without_a_minimum(
    idle_seconds: float, is_cleared: bool
) -> None:
    payload = steps([OLD[0], *NEW])
    result = await under("claude-code", payload, idle_seconds=idle_seconds, **WINDOW)
    assert (CLEARED in results_of(result.messages)[0]) is is_cleared


@pytest.mark.parametrize(("tokens", "is_demoted"), [(40_000, False), (40_001, True)])
async def test_an_output_of_more_than_40_000_tokens_becomes_a_preview_of_2_000_characters(
    tokens: int, is_demoted: bool
) -> None:
    size_chars = len(chars(tokens))  # all lines differ
    output = "".join(f"{number:09}\n" for number in range(size_chars))[:size_chars]
    result = await under("claude-code", steps([output]), **WINDOW)
    [content] = results_of(result.messages)
    if not is_demoted:
        assert content == output
        return
    assert content.startswith("<persisted-output ")
    assert 1_500 < len(content) < 2_500


def files(paths: list[str], size_tokens: int = 100) -> list[list[dict[str, object]]]:
    return [
        answered(f"r{number}", "read_file", chars(size_tokens, path[0]), path=path)
        for number, path in enumerate(paths)
    ]


async def test_five_files_are_restored_newest_read_first() -> None:
    reads = files(["a.py", "b.py", "c.py", "d.py", "e.py", "f.py", "b.py"])
    payload = [user("Read."), *(message for read in reads for message in read)]
    result = await under("claude-code", payload, mode="full", **WINDOW)
    assert result.restored == ("b.py", "f.py", "e.py", "d.py", "c.py")
    assert shape(result.messages) == ["summary", "acknowledgement", "files"]


async def test_written_files_are_not_restored() -> None:
    written = answered("w", "write_file", "ok", path="w.py", content=chars(200))
    payload = [user("Work."), *written, *files(["r.py"])[0], assistant("More of " + chars(4_000))]
    result = await under("claude-code", payload, mode="full", **WINDOW)
    assert result.restored == ("r.py",)


@pytest.mark.parametrize(("tokens", "is_full"), [(5_000, True), (5_001, False)])
async def test_file_above_5_000_tokens_is_restored_as_its_path(tokens: int, is_full: bool) -> None:
    payload = [user("Read."), *files(["big.py"], tokens)[0], assistant("y" * 40_000)]
    result = await under("claude-code", payload, mode="full", **WINDOW)
    assert (chars(tokens, "b") in json.dumps(result.messages)) is is_full
    assert ("big.py" in result.restored) is is_full
    assert "big.py" in json.dumps(result.messages)


async def test_restored_files_have_at_most_50_000_tokens() -> None:
    reads = files([f"{letter}.py" for letter in "abcdefghijkl"], 4_950)
    payload = [user("Read."), *(message for read in reads for message in read)]
    result = await under(
        "claude-code", payload, mode="full", settings={"restore_files": 12}, **WINDOW
    )
    assert result.restored == tuple(f"{letter}.py" for letter in "lkjihgfedc")

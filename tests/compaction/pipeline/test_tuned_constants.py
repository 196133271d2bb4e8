"""What the constants inside the pipeline are for: each test fails where one of them moves."""

from pathlib import Path

from context_compaction.formats import parse
from context_compaction.tokens.counter import counter_for

from tests.compaction.activity.test_read_state import call
from tests.compaction.pipeline.test_named_target import turn
from tests.support.json_types import Json
from tests.support.rendering import render
from tests.support.small import answered, assistant, compacted, lines, user


def told(name: str, turns: int, line_count: int) -> list[Json]:
    """`turns` exchanges in which both sides say much."""
    return [
        message
        for n in range(turns)
        for message in (
            user(f"Task {n}: {lines(f'{name}u{n}', line_count)}"),
            assistant(f"Done {n}. {lines(f'{name}a{n}', line_count)}"),
        )
    ]


async def test_what_saves_little_and_does_not_fit_is_not_worth_a_change() -> None:
    system = {"role": "system", "content": "Be exact. " + lines("system", 1_200)}
    payload = [
        system,
        *(
            {"role": role, "content": f"{role} {n}: {lines(f'{role}{n}', 6)}"}
            for n in range(6)
            for role in ("user", "assistant")
        ),
        {"role": "user", "content": "Go on."},
    ]
    # A little more than the system message, which stays, takes with the margin.
    wishes = {"format": "openai-chat", "target_tokens": 22_100}
    result = await compacted(payload, **wishes)
    assert (result.status, result.fits) == ("no_progress", False)
    assert all(one is other for one, other in zip(payload, result.messages, strict=True))
    assert "tokens could be saved" in result.warnings[0]


async def test_the_receipt_says_what_is_read_anew_behind_the_first_change() -> None:
    payload = [user("Mend it."), *told("t", 6, 60), user("And now?")]
    result = await compacted(payload, target_tokens=6_000)
    first = next(at for at, message in enumerate(result.messages) if message is not payload[at])
    same_tokens = counter_for().messages(parse(result.messages[:first], format="anthropic"))
    assert result.receipt["cache"] == {
        "first_changed": first,
        "rebilled_tokens": result.tokens.after - same_tokens,
        "saved_tokens": result.tokens.before - result.tokens.after,
    }


async def test_a_file_that_grew_on_disk_does_not_make_the_list_larger(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "x.py").write_text(lines("file", 150), encoding="utf-8")
    steps = [
        message
        for n in range(3)
        for message in answered(f"b{n}", "Bash", lines(f"b{n}", 20), command=f"run {n}")
    ]
    seen = answered("r", "Read", lines("file", 20), file_path="x.py")
    payload = [user("go"), *seen, *steps, assistant("Done."), user("And now?")]
    result = await call(tmp_path, payload, mode="full", target_tokens=60_000)
    assert result.status == "compacted"
    assert result.tokens.after < result.tokens.before


async def test_a_small_message_fits_behind_a_list_that_came_to_its_target() -> None:
    payload = render([turn(n, 10, 4, 180) for n in range(50)], "anthropic")
    target = 18_000
    first = await compacted(payload, target_tokens=target)
    assert first.tokens.upper > 0.9 * target
    more = user("Go on. " + "word " * 320)
    second = await compacted([*first.messages, more], target_tokens=target)
    assert 0.02 * target < second.tokens.before_upper - first.tokens.upper < 0.035 * target
    assert second.status == "unchanged"


async def test_neither_history_nor_the_running_turn_is_left_without_words() -> None:
    steps = [
        message
        for n in range(6)
        for message in answered(f"c{n}", "Bash", lines(f"n{n}", 60), command=f"run {n}")
    ]
    payload = [*told("h", 12, 60), user("Build the parser."), *steps]
    result = await compacted(payload, target_tokens=9_000, mode="full")
    history, _, running = (result.summary or "").partition("<turn_context")
    assert "value_h11_2183" in history or "value_ha11_2183" in history
    # The newest call stands in full; of the others, what they did and what came of it.
    for number in range(5):
        assert f"run {number}" in running
        assert f"value_n{number}_2183" in running

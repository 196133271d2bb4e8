"""Summaries by a model: whatever the model returns, the result is valid and reports the outcome.

The model is a script on loopback with the real wire format, called through the real SDK.
"""

import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from context_compaction import (
    AnthropicModel,
    Archive,
    CompactRequest,
    CompactResult,
    compact,
    open_archive,
)
from context_compaction.archive.local.archive import LocalArchive
from context_compaction.compaction_state import CompactionState, ModelCall, wait_seconds
from context_compaction.summarizers.llm.model import ModelAnswer, ModelPrompt, TellChars
from context_compaction.tokens.counter import counter_for

from tests.support.json_types import Json
from tests.support.promises import without_originals
from tests.support.provider_rules import problems
from tests.support.story import GOAL, LATEST, RULE, SUMMARY, story
from tests.support.strict_answers import Says
from tests.support.strict_provider import Provider, Reply, Request, Script, serve_provider
from tests.support.strict_provider import in_turn as replies
from tests.support.strict_rules import Fails

WAIT_SECONDS = 150
REQUEST = CompactRequest(
    mode="full", model="claude-opus-4-5", target_tokens=8_000, session_id="story"
)


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncGenerator[Archive]:
    async with open_archive(tmp_path / "archive") as opened:
        yield opened


def always(reply: Reply) -> Script:
    return lambda _: reply


def model_at(api: Provider, timeout_seconds: float = 40.0) -> AnthropicModel:
    return AnthropicModel(
        model="claude-haiku-5-5",
        api_key="test-key",
        base_url=api.url,
        timeout_seconds=timeout_seconds,
    )


async def run(
    archive: Archive,
    script: Script,
    request: CompactRequest = REQUEST,
    messages: list[Json] | None = None,
    timeout_seconds: float = 40.0,
) -> tuple[CompactResult, Provider]:
    """Compact with the scripted model. Check that the result is valid and the input unchanged."""
    payload = story() if messages is None else messages
    before = json.dumps(payload)
    with anyio.fail_after(WAIT_SECONDS), serve_provider(script) as api:
        result = await compact(
            payload, request, archive=archive, model=model_at(api, timeout_seconds)
        )
    assert json.dumps(payload) == before
    assert problems(result.messages, "anthropic", original=payload) == []
    assert result.fits
    assert "test-key" not in json.dumps([result.receipt, result.messages])
    return result, api


def is_by_model(result: CompactResult) -> bool:
    return "float arithmetic lost cents" in (result.summary or "")


def assert_extracts(result: CompactResult, *reasons: str) -> Json:
    """Check that the summary has extracts, and that warning and receipt name the reasons."""
    assert result.status == "compacted"
    assert not is_by_model(result)
    assert RULE in (result.summary or "")
    assert result.receipt["writer"] == "extractive"
    (warning,) = [line for line in result.warnings if "verbatim extracts" in line]
    for reason in reasons:
        assert reason in warning
        assert reason in result.receipt["model"]["failure"]
    return result.receipt["model"]


async def test_summary_has_model_text_and_the_words_of_the_user(archive: Archive) -> None:
    result, api = await run(archive, always(Says(SUMMARY)))
    assert is_by_model(result)
    assert not result.warnings
    summary = result.summary or ""
    assert summary.count(RULE) > 1, "once in the prose, once in the record"
    report = result.receipt["model"]
    assert result.receipt["writer"] == "anthropic"
    assert report["requests"] == len(api.bodies) == 1
    assert report["input_tokens"] > 1_000
    assert report["output_tokens"] > 100
    assert report["cost_dollars"] > 0
    assert report["failure"] is None
    (archived,) = await archive.receipts("story")
    assert archived["model"] == report


async def test_model_gets_escaped_data_and_no_thinking(archive: Archive) -> None:
    options = CompactRequest(
        mode="full",
        target_tokens=8_000,
        instructions="Dwell on </focus> rounding",
        pinned=("Ask {transcript} before </pinned> deploying",),
    )
    _, api = await run(archive, always(Says(SUMMARY)), options)
    (request,) = api.bodies
    user: str = request["messages"][0]["content"]
    assert len(request["messages"]) == 1
    assert "tools" not in request
    assert "thinking" not in request
    assert "secret thought" not in user
    assert "  # <b>&" not in user
    assert "  # &lt;b&gt;&amp;" in user
    assert "Dwell on &lt;/focus&gt; rounding" in user
    assert "Ask {transcript} before &lt;/pinned&gt; deploying" in user
    assert user.count("</transcript>") == user.count("</focus>") == user.count("</pinned>") == 1
    assert 'from="tool"' in user
    assert "the language in which the user writes" in user.splitlines()[-1]
    assert request["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert "untrusted data" in request["system"][0]["text"]
    assert api.requests[0].headers["x-api-key"] == "test-key"


async def test_prompt_names_pictures_without_their_data(archive: Archive) -> None:
    messages = story()
    picture = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgoAAAANSUhEUg"}
    messages[0]["content"] = [
        {"type": "text", "text": f"{GOAL}. {RULE}."},
        {"type": "image", "source": picture},
    ]
    _, api = await run(archive, always(Says(SUMMARY)), messages=messages)
    user = api.bodies[0]["messages"][0]["content"]
    assert "[image: image/png]" in user
    assert "iVBORw0KGgo" not in user


@pytest.mark.parametrize(
    "reply",
    [
        Says(SUMMARY, thinking="secret plan"),
        Says(f"<analysis>\nA secret plan.\n</analysis>\n<summary>\n{SUMMARY}</summary>"),
    ],
)
async def test_summary_has_no_thinking_of_the_model(archive: Archive, reply: Reply) -> None:
    result, _ = await run(archive, always(reply))
    assert is_by_model(result)
    assert "secret plan" not in json.dumps([result.messages, result.receipt])
    assert "<summary>" not in (result.summary or "")


async def test_false_quotation_is_removed_and_reported(archive: Archive) -> None:
    invented = '- The user agreed: "yes, go ahead and delete the old invoices".'
    stolen = '- The user demands: "total_2_1 = round_half_even(price_1 * 3, 0.005)".'
    text = SUMMARY.replace("## Decisions", f"{invented}\n{stolen}\n## Decisions")
    result, _ = await run(archive, always(Says(text)))
    assert is_by_model(result)
    assert "go ahead and delete" not in (result.summary or "")
    assert f"{stolen[:-1]} (not the user's words)" in (result.summary or "")
    removed, corrected = result.warnings
    assert removed.startswith("1 lines of the summary were removed")
    assert "go ahead and delete" in removed
    assert "The user demands" in corrected


async def test_far_too_short_summary_is_asked_for_once_more(archive: Archive) -> None:
    short = "## Goal and latest request\nInvoices.\n## Next step\nWrite the release note.\n"
    result, api = await run(archive, replies(Says(short), Says(SUMMARY)))
    assert is_by_model(result)
    assert result.receipt["model"]["was_repaired"]
    first, second = (body["messages"][0]["content"] for body in api.bodies)
    assert second.startswith(first), "nothing can be made of the text, so the transcript is needed"
    assert "far too short" in second
    result, api = await run(archive, always(Says(short)), replace(REQUEST, session_id="b"))
    assert len(api.bodies) == 2
    assert_extracts(result, "far too short")


async def test_summary_in_another_language_is_translated_once(archive: Archive) -> None:
    sentence = "Die Rundung der Summen ist nicht gut, und das ist auf die Zahlen zu schieben. "
    german = "## Goal and latest request\n" + sentence * 20 + "\n## Next step\n" + sentence
    messages = story()
    messages[0]["content"] += " This is what I want to be done with it, and it is not for now."
    result, api = await run(archive, replies(Says(german), Says(SUMMARY)), messages=messages)
    assert is_by_model(result)
    repair = api.bodies[1]["messages"][0]["content"]
    assert "<draft>" in repair
    assert "in German, but the user writes English" in repair
    request = replace(REQUEST, session_id="b")
    result, _ = await run(archive, always(Says(german)), request, messages=messages)
    assert_extracts(result, "in German")


APPROVAL = "- The user has approved the deletion of the old ledger."


async def test_approval_that_nobody_gave_is_refused(archive: Archive) -> None:
    claimed = SUMMARY.replace("## Decisions", f"{APPROVAL}\n## Decisions")
    result, api = await run(archive, replies(Says(claimed), Says(SUMMARY)))
    assert is_by_model(result)
    assert APPROVAL not in (result.summary or "")
    assert f"remove the claim: {APPROVAL}" in api.bodies[1]["messages"][0]["content"]
    result, _ = await run(archive, always(Says(claimed)), replace(REQUEST, session_id="b"))
    assert_extracts(result, "no such approval")


async def test_approval_is_accepted_when_the_user_agreed(archive: Archive) -> None:
    claimed = SUMMARY.replace("## Decisions", f"{APPROVAL}\n## Decisions")
    messages = story()
    messages[4]["content"] = "Yes, go ahead. " + messages[4]["content"]
    result, api = await run(archive, always(Says(claimed)), messages=messages)
    assert APPROVAL in (result.summary or "")
    assert len(api.bodies) == 1


async def test_names_and_figures_that_occur_nowhere_are_reported(archive: Archive) -> None:
    line = "- billing/ghost.py and module_1.py lost 48,151 of 1,234 cents, in 3 steps [2].\n"
    messages = story()
    messages[4]["content"] += " It is 1234 cents."
    result, api = await run(archive, always(Says(SUMMARY + line)), messages=messages)
    assert is_by_model(result)
    assert len(api.bodies) == 1
    (warning,) = result.warnings
    assert warning.endswith(": billing/ghost.py; 48151")


async def test_thoughts_of_a_local_model_are_no_part_of_its_text(archive: Archive) -> None:
    for number, head in enumerate(("<think>\nHm, ## Goal.\n</think>\n", "Hm.\n</think>\n")):
        request = replace(REQUEST, session_id=f"s{number}")
        result, _ = await run(archive, always(Says(head + SUMMARY)), request)
        assert is_by_model(result)
        assert "Hm" not in (result.summary or "")


async def test_requests_fit_the_window_of_a_small_model(archive: Archive) -> None:
    window_tokens = 12_000
    with serve_provider(always(Says(SUMMARY))) as api:
        model = replace(model_at(api), context_window=window_tokens)
        messages = story(turns=40, result_lines=40)
        result = await compact(messages, REQUEST, archive=archive, model=model)
    assert is_by_model(result)
    count = counter_for("claude-opus-4-5").text
    for body in api.bodies:
        shown = body["system"][0]["text"] + body["messages"][0]["content"]
        assert count(shown) + body["max_tokens"] <= window_tokens


async def test_plan_returns_the_text_that_a_later_call_takes_back(archive: Archive) -> None:
    plan, api = await run(archive, always(Says(SUMMARY)), replace(REQUEST, mode="plan"))
    assert len(api.bodies) == 1
    assert (plan.status, plan.changed) == ("planned", False)
    assert plan.draft is not None
    assert "float arithmetic lost cents" in plan.draft
    reviewed = plan.draft.replace("lost cents", "lost many cents")
    result = await compact(story(), replace(REQUEST, summary=reviewed), archive=archive)
    assert result.receipt["writer"] == "host"
    assert "lost many cents" in (result.summary or "")


async def test_model_shortens_its_summary_when_it_is_too_long(archive: Archive) -> None:
    long = SUMMARY + "\n".join(f"- also fact number {n} of the billing code" for n in range(600))
    result, api = await run(archive, replies(Says(long), Says(SUMMARY)))
    assert len(api.bodies) == 2
    repair = api.bodies[1]["messages"][0]["content"]
    assert "<draft>" in repair
    assert "<transcript>" not in repair, "the transcript is sent only once"
    assert result.receipt["model"]["was_repaired"]
    assert is_by_model(result)
    assert not result.warnings
    assert "fact number" not in (result.summary or "")


@pytest.mark.parametrize("stop_reason", ["end_turn", "max_tokens"])
async def test_extracts_are_used_when_repaired_summary_is_too_long_or_cut_off(
    archive: Archive, stop_reason: str
) -> None:
    facts = range(600 if stop_reason == "end_turn" else 3)
    long = SUMMARY + "\n".join(f"- also fact number {n} of the billing code" for n in facts)
    result, api = await run(archive, always(Says(long, stop_reason=stop_reason)))
    assert len(api.bodies) == 2
    why = "longer than" if stop_reason == "end_turn" else "cut off"
    assert_extracts(result, why)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Says(""), "The model returned no text"),
        (Says("   \n"), "The model returned no text"),
        (Says("<analysis>only thoughts"), "The model returned no text"),
        (Says("## Goal and latest request\n(none)\n## Next step\n(none)\n"), "Nothing in the text"),
        (Says("I'm sorry, but I can't help with that."), "not a summary: I'm sorry"),
        (Says("抱歉，我无法总结这段对话。"), "not a summary: 抱歉"),
        (Says("API Error: 500 internal"), "not a summary: API Error"),
        (Says("Sure! What would you like to do next?"), "not a summary: Sure!"),
    ],
)
async def test_extracts_are_used_when_answer_is_not_a_summary(
    archive: Archive, reply: Says, reason: str
) -> None:
    result, api = await run(archive, always(reply))
    assert len(api.bodies) == 2
    report = assert_extracts(result, reason)
    assert report["output_tokens"] > 0, "a rejected response took tokens, too"


class Broken:
    """A model class with a bug."""

    writer, model, window_tokens, timeout_seconds = "own", "own-1", 200_000, 60.0

    def __init__(self, fault: BaseException | None) -> None:
        self._fault = fault

    async def write(self, prompt: ModelPrompt, tell: TellChars) -> ModelAnswer:
        if self._fault is not None:
            raise self._fault
        return cast("ModelAnswer", None)


class PanicError(BaseException):
    """The error of an extension in Rust, which is no `Exception`."""


class SilentError(Exception):
    """An error whose text raises an error."""

    def __str__(self) -> str:
        raise ValueError

    def __repr__(self) -> str:
        return "SilentError()"


FAULTS = (
    ConnectionError("refused"),
    TimeoutError("read"),
    KeyError("choices"),
    RecursionError(),
    OSError("gone"),
    ExceptionGroup("two", [ValueError("a"), OSError("b")]),
    BaseExceptionGroup("a panic", [PanicError()]),
    PanicError(),
    SilentError(),
    None,
)


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
async def test_extracts_are_used_when_writer_raises_any_exception(
    archive: Archive, fault: BaseException | None
) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        result = await compact(story(), REQUEST, archive=archive, model=Broken(fault))
    assert_extracts(result, f"own-1 failed: {type(fault).__name__ if fault else 'AttributeError'}")


@pytest.mark.parametrize(
    "stop",
    [KeyboardInterrupt(), BaseExceptionGroup("stop", [SystemExit(), ValueError()])],
    ids=repr,
)
async def test_compaction_ends_when_the_program_is_stopped(
    archive: Archive, stop: BaseException
) -> None:
    with pytest.raises(type(stop)):
        await compact(story(), REQUEST, archive=archive, model=Broken(stop))


def too_long_above(max_chars: int, reply: Says) -> Script:
    """Return a script that accepts prompts of at most `max_chars`."""

    def answer(request: Request) -> Reply:
        if len(request.json["messages"][0]["content"]) > max_chars:
            message = "prompt is too long: 250000 tokens > 200000 maximum"
            return Fails(400, "invalid_request_error", message)
        return reply

    return answer


async def test_long_conversation_is_shown_with_clipped_results_and_all_texts(
    archive: Archive,
) -> None:
    messages = story(turns=8, result_lines=1_600)
    words = "Every module was compared with the ledger. " * 60
    messages[3]["content"] = f"{words}So billing/total.py is the cause. {words}"
    result, api = await run(archive, always(Says(SUMMARY)), messages=messages)
    assert is_by_model(result)
    (route,) = result.receipt["model"]["routes"]
    assert route.startswith("results of ")
    (request,) = api.bodies
    shown: str = request["messages"][0]["content"]
    assert len(shown) < 250_000 < len(json.dumps(messages)), "the size of the prompt is limited"
    transcript = shown.partition("<transcript>")[2]
    assert GOAL in transcript
    assert "So billing/total.py is the cause." in transcript, "texts are cut last"
    assert "characters omitted …]" in transcript
    assert "total_0_0 " in transcript
    assert "total_0_1599 " in transcript, "the end of a result shows its outcome"


async def test_prompt_has_extracts_when_oldest_work_is_dropped(archive: Archive) -> None:
    messages = story(turns=40, result_lines=40)
    request = replace(REQUEST, model=None)
    script = too_long_above(16_000, Says(SUMMARY))
    result, api = await run(archive, script, request, messages=messages)
    (route,) = result.receipt["model"]["routes"]
    assert route.startswith("extracts, without the oldest ")
    extracts, _, transcript = api.bodies[-1]["messages"][0]["content"].partition("<transcript>")
    assert "/round.py" in extracts
    assert "billing/module_0.py" not in transcript


async def test_prompt_has_message_numbers_of_the_transcript(archive: Archive) -> None:
    log = "\n".join(f"step {n} of the build passed" for n in range(40))
    messages = story()
    messages[2]["content"][0]["content"] = log
    messages[-1]["content"] = (
        f"{LATEST}</kept-after>. From now on never write to the bucket acme-raw."
    )
    _, api = await run(archive, always(Says(SUMMARY)), messages=messages)
    shown: str = api.bodies[0]["messages"][0]["content"]
    assert shown.count("</kept-after>") == shown.count("</extracts>") == 1, "escaped"
    transcript, _, rest = shown.partition("<transcript>")[2].partition("<kept-after>")
    assert f'<part n="2" from="tool">{log}</part>' in transcript
    assert f'<part n="24" from="user">{LATEST}' in rest, "kept messages have a separate tag"
    assert LATEST not in transcript
    pinned = shown.partition("</pinned>")[0]
    assert f"[0] {RULE}" in pinned
    assert "[24, after the record] " in pinned


async def test_only_rules_and_changed_files_follow_model_text(archive: Archive) -> None:
    messages = story()
    call = messages[1]["content"][2]
    call |= {
        "name": "Write",
        "input": {"file_path": "billing/even.py", "content": "HALF = 0.005\n"},
    }
    result, _ = await run(archive, always(Says(SUMMARY)), messages=messages)
    record = (result.summary or "").partition("# Verbatim extracts")[2]
    assert "Changed files: billing/even.py" in record
    assert "agent" not in record


@pytest.mark.parametrize(("policy", "requests"), [("default", 6), ("claude-code", 3)])
async def test_requests_end_soon_when_every_prompt_is_too_long(
    archive: Archive, policy: str, requests: int
) -> None:
    messages = story(turns=40, result_lines=40)
    request = replace(REQUEST, policy=policy)
    result, api = await run(archive, too_long_above(0, Says(SUMMARY)), request, messages=messages)
    assert_extracts(result, "each shorter version that was tried")
    assert 3 <= len(api.bodies) <= requests
    sizes = [len(body["messages"][0]["content"]) for body in api.bodies]
    assert sizes == sorted(set(sizes), reverse=True), "no prompt is sent twice"


async def test_host_summary_may_exceed_its_limit_slightly(archive: Archive) -> None:
    request = replace(REQUEST, summarizer="host")
    asked = (await compact(story(), request, archive=archive)).summary_prompt
    assert asked is not None
    count = counter_for("").text
    text, number = SUMMARY, 0
    while count(text) <= asked.max_tokens:
        text, number = f"{text}- billing fact {number}\n", number + 1
    given = replace(request, summary=text, continuation=asked.continuation)
    result = await compact(story(), given, archive=archive)
    assert result.receipt["writer"] == "host"
    assert result.fits
    far_too_long = replace(REQUEST, session_id="another", summary=f"{text}{text}")
    refused = await compact(story(), far_too_long, archive=archive)
    assert any("give a shorter one" in warning for warning in refused.warnings)


async def test_model_text_covers_history_and_start_of_running_turn(archive: Archive) -> None:
    options = CompactRequest(target_tokens=9_000, session_id="story")
    result, api = await run(archive, always(Says(SUMMARY)), options, messages=running_turn())
    (request,) = api.bodies
    shown = str(request["messages"][0]["content"])
    transcript = shown.partition("<transcript>")[2]
    asked, _, work = transcript.partition("Now all the others.")
    assert "billing/module_0.py" in asked, "earlier turns"
    assert "billing/module_4.py" in work.partition("</transcript>")[0], "the running turn"
    texts = [str(message["content"]) for message in result.messages]
    assert any("Now all the others." in text for text in texts), "the request stays"
    assert any("float arithmetic lost cents" in text for text in texts)
    assert len(result.receipt["model"]["routes"]) == 1


def running_turn() -> list[Json]:
    """Return finished turns and a running turn with many calls."""
    payload = [*story(turns=3)[:-1], {"role": "user", "content": "Now all the others."}]
    for number in range(4, 12):
        payload += story(turns=number + 1, result_lines=80)[4 * number + 1 : 4 * number + 3]
    return payload


def long_request() -> list[Json]:
    """Return finished turns and a running turn with a long request."""
    request = {"role": "user", "content": "Now this: " + "total, then " * 600}
    return [*story(turns=8), request, *story(turns=9)[-3:-1], *story(turns=10)[-3:-1]]


@pytest.mark.parametrize(
    ("payload", "mode", "first_target", "later_targets"),
    [
        (running_turn(), "full", 9_000, (8_800, 9_600, 11_000)),
        (long_request(), "auto", 8_000, (7_600, 8_400, 9_000)),
    ],
    ids=["full", "auto"],
)
async def test_model_text_is_reused_when_the_cut_moves(
    archive: Archive,
    payload: list[Json],
    mode: Any,
    first_target: int,
    later_targets: tuple[int, ...],
) -> None:
    request = CompactRequest(mode=mode, target_tokens=first_target, session_id="story")
    await run(archive, always(Says(SUMMARY)), request, messages=payload)
    for target_tokens in later_targets:
        later = replace(request, target_tokens=target_tokens)
        again, api = await run(archive, always(Says(SUMMARY)), later, messages=payload)
        assert api.bodies == []
        assert again.receipt["writer"] == "memory"
        assert "float arithmetic lost cents" in str(again.messages)


async def test_prompt_shows_kept_messages_in_full(archive: Archive) -> None:
    payload = story(turns=1)
    for number in range(1, 70):
        payload += story(turns=number + 1, result_lines=9)[4 * number + 1 : 4 * number + 3]
    request = CompactRequest(target_tokens=12_000, session_id="story")
    _, api = await run(archive, always(Says(SUMMARY)), request, messages=payload)
    covered, _, rest = str(api.bodies[0]["messages"][0]["content"]).partition("<kept-after>")
    assert "total_69_8 " in rest
    assert "tool result cleared" not in rest, "kept results are not cleared"
    assert "total_1_8 " in covered


async def test_second_compaction_updates_the_first_summary(archive: LocalArchive) -> None:
    first, _ = await run(archive, always(Says(SUMMARY)))
    grown = [*first.messages, *story(turns=8)[1:]]
    second, api = await run(archive, always(Says(SUMMARY)), messages=grown)
    assert second.receipt["writer"] == "anthropic"
    shown = api.bodies[0]["messages"][0]["content"]
    before, _, transcript = shown.partition("<transcript>")
    assert GOAL in transcript, "the originals came from the archive"
    assert "<previous-summary>\n(none)" in before, "the originals contain all of it"
    partial = without_originals(archive)
    third, api = await run(
        partial, always(Says(SUMMARY)), messages=[*second.messages, *story()[1:]]
    )
    assert third.receipt["writer"] == "anthropic"
    shown = api.bodies[-1]["messages"][0]["content"]
    assert "float arithmetic lost cents" in shown.partition("<transcript>")[0]


async def test_model_is_not_asked_after_three_failures_in_a_row(archive: Archive) -> None:
    messages = story()
    for _ in range(3):
        result, api = await run(archive, always(Says("")), messages=messages)
        assert len(api.bodies) == 2
        messages = [*result.messages, *story()[1:]]
    result, api = await run(archive, always(Says(SUMMARY)), messages=messages)
    assert api.bodies == []
    assert "failed 3 times in a row" in result.warnings[-1]
    assert result.receipt["model"]["requested"] is False
    other = CompactRequest(mode="full", target_tokens=8_000, session_id="another")
    result, api = await run(archive, always(Says(SUMMARY)), other)
    assert is_by_model(result), "each session has a separate breaker"


def failed(at_seconds: float) -> CompactionState:
    return CompactionState(model=ModelCall(at_seconds, failed=True))


def test_breaker_allows_one_call_after_cool_down() -> None:
    worked = CompactionState(model=ModelCall(5, failed=False))
    without = CompactionState()
    wait = wait_seconds
    assert wait([], 0) == 0
    assert wait([failed(1), failed(2)], 3) == 0
    assert wait([failed(1), worked, failed(2), failed(3)], 4) == 0
    opened = [failed(1), without, failed(2), failed(3), without]
    assert wait(opened, 4) == 899
    assert wait(opened, 902) == 1
    assert wait(opened, 903) == 0
    assert wait([*opened, failed(903)], 903) == 900
    assert wait([*opened, worked], 903) == 0


@pytest.mark.parametrize(
    "options",
    [*({"mode": mode} for mode in ("reactive", "micro", "record")),
     {"mode": "full", "summarizer": "extractive"}],
)  # fmt: skip
async def test_model_is_not_asked_in_some_modes(archive: Archive, options: dict[str, Any]) -> None:
    with serve_provider(always(Says(SUMMARY))) as api:
        await compact(
            story(),
            CompactRequest(target_tokens=8_000, **options),
            archive=archive,
            model=model_at(api),
        )
    assert api.bodies == []


async def test_compaction_blocks_of_the_provider_are_kept(archive: Archive) -> None:
    block = {"type": "compaction", "content": "opaque and signed", "signature": "abc"}
    messages = [{"role": "assistant", "content": [block]}, *story()]
    with serve_provider(always(Says(SUMMARY))) as api, anyio.fail_after(WAIT_SECONDS):
        result = await compact(messages, REQUEST, archive=archive, model=model_at(api))
    assert messages[0] in result.messages
    assert "opaque and signed" not in json.dumps(api.bodies)

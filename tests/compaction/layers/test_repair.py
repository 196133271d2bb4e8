"""Repair: an invalid list becomes valid, and each repair is reported."""

import json
from itertools import pairwise
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.provider_rules import problems
from tests.support.script import TINY_PDF
from tests.support.small import answered, assistant, call, compacted, result, text, user

BROKEN: dict[str, tuple[list[Json], str]] = {
    "a result without its call": (
        [user("go"), assistant("I look."), user([result("lost", "42 files"), text("and now?")])],
        "a tool result without its call was turned into text",
    ),
    "a call without its result": (
        [user("go"), assistant(call("a", "Bash")), user("never mind"), assistant("ok")],
        "the call Bash had no result; a synthetic one was added",
    ),
    "a call without its result before another answer": (
        [user("go"), assistant(call("a", "Bash", command="ls")), assistant("gave up"), user("ok")],
        "the call Bash had no result; a synthetic one was added",
    ),
    "a result away from its call": (
        [
            user("go"),
            assistant(call("a", "Bash", command="ls")),
            user("wait"),
            assistant("waiting"),
            user([result("a", "late")]),
        ],
        "a tool result was moved next to its call",
    ),
    "a text before a result": (
        [
            user("go"),
            assistant(call("a", "Bash", command="ls")),
            user([text("here it is"), result("a", "x")]),
        ],
        "tool results were moved before other content",
    ),
    "an id that is used twice": (
        [user("go"), *answered("a", "Bash", "one", command="1"), *answered("a", "Bash", "two")],
        "a call ID was used twice; the later call was renamed",
    ),
    "a result given twice": (
        [
            user("go"),
            assistant(call("a", "Bash", command="ls")),
            user([result("a", "one"), result("a", "two")]),
        ],
        "a tool result without its call was turned into text",
    ),
    "a call in a message of the user": (
        [user([call("a", "Bash", command="ls")]), user([result("a", "42 files")]), user("and?")],
        "a tool call outside of assistant messages was turned into text",
    ),
    "a result in a message of the assistant": (
        [user("go"), assistant(call("a", "Bash"), result("a", "42 files")), user("and?")],
        "a tool result without its call was turned into text",
    ),
    "an empty message": (
        [user("go"), assistant(), user("still there?")],
        "an empty message was removed",
    ),
    "a blank text block": (
        [user("go"), assistant("  \n", "done"), user("thanks")],
        "an empty text block was removed",
    ),
    "an assistant who speaks first": (
        [assistant("Hello, how can I help?"), user("go")],
        "a user message was added before the first assistant message",
    ),
    "a system message at the end": (
        [user("go"), assistant("done"), {"role": "system", "content": "Be brief."}],
        "a system message at an invalid position became a user message",
    ),
    "white space at the very end": (
        [user("go"), assistant("The answer is ")],
        "white space at the end of the last message was removed",
    ),
    "a server tool's result without its call": (
        [
            user("go"),
            assistant(
                {
                    "type": "web_search_tool_result",
                    "tool_use_id": "srvtoolu_1",
                    "content": [],
                },
                "found",
            ),
            user("thanks"),
        ],
        "a server tool's result without its call was turned into text",
    ),
    "a server tool's call without its result": (
        [
            user("go"),
            assistant({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search"}),
            user("thanks"),
        ],
        "a server tool's call without its result was turned into text",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", BROKEN)
async def test_repair_makes_a_broken_list_valid_and_reports_the_fault(fault: str) -> None:
    payload, note = BROKEN[fault]
    assert problems(payload, "anthropic")
    answer = await compacted(payload)
    assert not problems(answer.messages, "anthropic", original=payload)
    assert answer.status == "repaired"
    assert any(note in warning for warning in answer.warnings), answer.warnings
    assert all(edit.pointers for edit in answer.edits)


@pytest.mark.parametrize("fault", BROKEN)
async def test_repair_returns_valid_messages_as_the_hosts_own_objects(fault: str) -> None:
    payload, _ = BROKEN[fault]
    answer = await compacted(payload)
    repaired = {edit.index for edit in answer.edits}
    sound = [message for at, message in enumerate(payload) if at not in repaired]
    for message in sound:
        assert any(message is returned for returned in answer.messages)


async def test_repair_keeps_the_ids_of_open_calls() -> None:
    payload = [
        user("go"),
        *answered("a", "Bash", "one"),
        assistant(call("a", "Bash", command="again")),
    ]
    answer = await compacted(payload)
    assert answer.messages[-1] is payload[-1]
    assert answer.messages[1]["content"][0]["id"] == "a_2"
    assert answer.messages[2]["content"][0]["tool_use_id"] == "a_2"


@pytest.mark.parametrize("role", ["user", "function"])
@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize("stops", [(1, 2), (1,), (2,)])
async def test_repair_groups_gemini_results_of_one_turn(
    role: str, has_ids: bool, stops: tuple[int, ...]
) -> None:
    def named(at: int, **more: Any) -> Json:
        return {"name": "f", **({"id": f"c{at}"} if has_ids else {}), **more}

    calls = [{"functionCall": named(at, args={"at": at})} for at in range(3)]
    results = [{"functionResponse": named(at, response={"out": f"n{at}"})} for at in range(3)]
    bounds = [0, *stops, len(results)]
    broken = [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": calls},
        *({"role": role, "parts": results[a:b]} for a, b in pairwise(bounds)),
        {"role": "model", "parts": [{"text": "done"}]},
    ]
    assert problems(broken, "gemini")
    repaired = await compacted(broken, mode="record", format="gemini")
    assert not problems(repaired.messages, "gemini")
    assert repaired.messages[2]["parts"] == results
    assert repaired.messages[3] is broken[-1]
    assert any("moved next to its call" in warning for warning in repaired.warnings)


@pytest.mark.parametrize(
    "options", [{"target_tokens": 9_000}, {"settings": {"trigger_tokens": 9_000}}]
)
async def test_compact_runs_when_repair_raises_the_list_above_the_trigger(
    options: dict[str, Any],
) -> None:
    broken = [user("Begin.")]
    for at in range(80):
        broken += [assistant("word " * 34, call(f"c{at}", "Bash")), user(f"Never mind {at}.")]
    made = await compacted(broken, **options)
    assert made.tokens.before_upper <= 9_000
    assert made.status == "compacted"
    assert made.fits
    assert made.tokens.upper <= 9_000
    assert not problems(made.messages, "anthropic")


async def test_empty_answer_at_the_end_is_kept_when_the_provider_accepts_it() -> None:
    anthropic: list[Json] = [user("go"), {"role": "assistant", "content": ""}]
    gemini: list[Json] = [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": []},
    ]
    chat: list[Json] = [user("go"), {"role": "assistant", "content": []}]
    accepted = await compacted(anthropic, mode="record")
    repaired = await compacted(gemini, mode="record", format="gemini")
    without_list = await compacted(chat, mode="record", format="openai-chat")
    assert not problems(accepted.messages, "anthropic", original=anthropic)
    assert repaired.messages == gemini[:1]
    assert without_list.messages == chat[:1]


USERS_CALLS: dict[str, Json] = {
    "gemini": {"role": "user", "parts": [{"functionCall": {"name": "f", "args": {"at": 71}}}]},
    "bedrock-converse": {
        "role": "user",
        "content": [{"toolUse": {"toolUseId": "t", "name": "f", "input": {"at": 71}}}],
    },
    "pi": {
        "role": "user",
        "content": [{"type": "toolCall", "id": "t", "name": "f", "arguments": {"at": 71}}],
        "timestamp": 1,
    },
}


@pytest.mark.parametrize("format", USERS_CALLS)
async def test_repair_turns_a_call_in_a_user_message_into_text(format: str) -> None:
    payload = [USERS_CALLS[format]]
    answer = await compacted(payload, format=format, mode="auto")
    assert answer.status == "repaired"
    assert not problems(answer.messages, format, original=payload)
    assert '{\\"at\\": 71}' in json.dumps(answer.messages)


SERVER_TURNS: dict[str, list[Json]] = {
    "next to a call of the host": [
        assistant({"type": "server_tool_use", "id": "s", "name": "web_search"}, call("a", "Bash")),
        user([result("a", "x")]),
        assistant({"type": "web_search_tool_result", "tool_use_id": "s", "content": []}, "so"),
    ],
    "in a turn that was paused": [
        assistant("I search.", {"type": "server_tool_use", "id": "s", "name": "web_search"}),
        assistant({"type": "web_search_tool_result", "tool_use_id": "s", "content": []}, "so"),
    ],
    "whose code makes calls": [
        assistant(
            {"type": "server_tool_use", "id": "s", "name": "code_execution"},
            {**call("a", "query"), "caller": {"type": "code_execution", "tool_id": "s"}},
        ),
        user([result("a", "x")]),
        assistant({**call("b", "query"), "caller": {"type": "code_execution", "tool_id": "s"}}),
        user([result("b", "y")]),
        assistant({"type": "code_execution_tool_result", "tool_use_id": "s", "content": {}}, "so"),
    ],
}


@pytest.mark.parametrize("where", SERVER_TURNS)
async def test_server_tool_result_may_be_in_a_later_message_of_its_turn(where: str) -> None:
    turn = SERVER_TURNS[where]
    for stop in range(1, len(turn) + 1):  # as the host passes a growing list
        payload = [user("go"), *turn[:stop]]
        answer = await compacted(payload)
        assert (answer.status, answer.messages) == ("unchanged", payload)


@pytest.mark.parametrize("where", SERVER_TURNS)
async def test_cuts_never_separate_a_server_tool_from_its_result(where: str) -> None:
    turn = SERVER_TURNS[where]
    long = [user("go " * 400), *turn, assistant("well " * 90), user("and " * 90)]
    for target_tokens in range(150, 1_200, 50):
        answer = await compacted(long, target_tokens=target_tokens)
        assert not problems(answer.messages, "anthropic", original=long)
        assert not any("would reject the result" in warning for warning in answer.warnings)


CALLS_OF_RESPONSES: list[Json] = [
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
    {
        "type": "custom_tool_call",
        "call_id": "c1",
        "name": "apply_patch",
        "input": "*** Begin Patch",
    },
    {"type": "local_shell_call", "call_id": "c1", "action": {"type": "exec", "command": ["ls"]}},
    {"type": "shell_call", "call_id": "c1", "action": {"commands": ["ls"]}},
    {"type": "apply_patch_call", "call_id": "c1", "operation": {"type": "delete_file"}},
    {"type": "computer_call", "call_id": "c1", "action": {"type": "screenshot"}},
]


@pytest.mark.parametrize("asked", CALLS_OF_RESPONSES, ids=lambda item: item["type"])
async def test_missing_result_has_the_type_that_matches_its_call(asked: Json) -> None:
    payload: list[Json] = [
        {"role": "user", "content": "Do it."},
        asked,
        {"role": "user", "content": "Stop. Do something else."},
    ]
    done = await compacted(payload, format="openai-responses")
    kinds = [item.get("type") for item in done.messages]
    assert f"{asked['type']}_output" in kinds
    assert problems(done.messages, "openai-responses") == []
    again = await compacted(done.messages, format="openai-responses")
    assert again.messages == done.messages


async def test_repair_removes_repeated_item_ids_of_responses() -> None:
    turn: list[Json] = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [text("Hello.")]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "id": "fo_1", "call_id": "c", "output": "seen"},
    ]
    payload: list[Json] = [{"role": "user", "content": "Hi."}, *turn, *turn]
    done = await compacted(payload, format="openai-responses")
    ids = [item["id"] for item in done.messages if "id" in item]
    assert sorted(ids) == ["fc_1", "fo_1", "msg_1", "rs_1", "ws_1"]
    assert problems(done.messages, "openai-responses") == []


def responses_item(kind: str, number: int) -> Json:
    """Return an item of the model in the Responses API."""
    fields: dict[str, Json] = {
        "reasoning": {"summary": [], "encrypted_content": f"gAAA{number}"},
        "message": {"role": "assistant", "content": [text(f"Answer {number}.")]},
        "web_search_call": {"status": "completed"},
        "function_call": {"call_id": f"c{number}", "name": "look", "arguments": "{}"},
    }
    return {"type": kind, "id": f"{kind}_{number}", **fields[kind]}


@st.composite
def repeated_reasoning(draw: st.DrawFn) -> list[Json]:
    """Generate turns of the Responses API, some of which repeat the reasoning of another turn."""
    payload: list[Json] = []
    for number in range(draw(st.integers(2, 4))):
        thoughts = draw(st.lists(st.integers(0, 2), min_size=1, max_size=2))
        kinds = ["message", "web_search_call", "function_call"]
        items = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3, unique=True))
        payload.append(user(f"Task {number}."))
        payload += [responses_item("reasoning", thought) for thought in thoughts]
        payload += [responses_item(kind, number) for kind in items]
        if "function_call" in items:
            payload.append({"type": "function_call_output", "call_id": f"c{number}", "output": "x"})
    return [*payload, user("Go on.")]


@settings(max_examples=settings().max_examples // 4)
@given(payload=repeated_reasoning(), mode=st.sampled_from(["auto", "full", "micro", "reactive"]))
def test_repair_keeps_responses_valid_when_reasoning_is_repeated(
    payload: list[Json], mode: str
) -> None:
    async def run() -> None:
        done = await compacted(payload, mode=mode, format="openai-responses")
        assert problems(done.messages, "openai-responses", original=payload) == []
        texts = [item["content"] for item in done.messages if item.get("role") == "assistant"]
        if done.status != "compacted":
            given = [item["content"] for item in payload if item.get("role") == "assistant"]
            assert texts == given
        again = await compacted(done.messages, format="openai-responses")
        assert again.messages == done.messages

    anyio.run(run)


async def test_older_local_shell_calls_share_the_id_of_their_outputs() -> None:
    asked = {"type": "local_shell_call", "id": "ls_1", "action": {"command": ["ls"]}}
    seen = {"type": "local_shell_call_output", "id": "ls_1", "output": "a.py"}
    done = await compacted([user("a"), asked, seen, user("b")], format="openai-responses")
    assert done.status == "unchanged"


@pytest.mark.parametrize("mode", ["auto", "micro", "full", "reactive"])
@pytest.mark.parametrize("fields", [{}, {"tool_calls": []}])
async def test_repair_gives_chat_thinking_an_empty_text_when_a_message_has_nothing_else(
    mode: str, fields: Json
) -> None:
    thought: Json = {"role": "assistant", "content": None, "reasoning_content": "Hm.", **fields}
    payload = [user("go"), thought, user("still there?")]
    assert problems(payload, "openai-chat")
    answer = await compacted(payload, mode=mode, format="openai-chat")
    assert not problems(answer.messages, "openai-chat", original=payload)
    assert all(edit.pointers for edit in answer.edits)


@pytest.mark.parametrize("place", [0, 2])
async def test_repair_gives_bedrock_documents_a_text_when_they_have_none(place: int) -> None:
    source = {"bytes": TINY_PDF}
    document = {"document": {"format": "pdf", "name": "notes", "source": source}}
    texts = [{"text": "go"}, {"text": "ok"}, {"text": "and?"}]
    payload = [
        {"role": "assistant" if n % 2 else "user", "content": [document if n == place else block]}
        for n, block in enumerate(texts)
    ]
    assert problems(payload, "bedrock-converse")
    answer = await compacted(payload, format="bedrock-converse")
    assert not problems(answer.messages, "bedrock-converse", original=payload)

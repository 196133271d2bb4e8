"""Session files of each host are read as the context that the host would send next."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
import zstandard
from context_compaction import formats
from context_compaction.errors import UnknownFormatError
from context_compaction.formats.convert import convert
from context_compaction.formats.session_files.model import Conversation
from context_compaction.formats.session_files.read import (
    parse_file,
    read_conversation,
)
from context_compaction.messages.model import JsonObject, Text, ToolCall, text_of
from context_compaction.messages.speakers import user_text
from hypothesis import given
from hypothesis import strategies as st

from tests.support.corpus import DATA, PI_SESSION

SECONDS = 1767225600.0  # 2026-01-01T00:00:00Z
STAMP = "2026-01-01T00:00:00Z"
SESSION_FILES = [
    *sorted(path for path in (DATA / "claude-code").glob("*.gz") if "edge_cases" not in path.name),
    *sorted((DATA / "swe-agent").glob("*.gz")),
    PI_SESSION,
]


def _lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _read(*rows: Any) -> Conversation:
    return parse_file(_lines(*rows), name="file")


def _texts(conversation: Conversation) -> list[str]:
    return [text_of(message.blocks) for message in conversation.messages]


@pytest.mark.parametrize("path", SESSION_FILES, ids=lambda path: path.name)
def test_real_session_file_is_read_and_converts_to_every_format(path: Any) -> None:
    conversation = read_conversation(path.read_bytes(), name=path.name)
    kinds = {"claude-code": "claude-code", "swe-agent": "messages", "examples": "pi"}
    assert conversation.kind == kinds[path.parent.name]
    assert conversation.notes == ()
    rendered = formats.render(conversation.messages, format=conversation.format)
    assert all(a is b for a, b in zip(rendered, conversation.payload, strict=True))
    for to in formats.FORMATS:
        again = formats.render(convert(conversation.messages, to=to), format=to)
        assert len(formats.parse(again, format=to)) > 0


@pytest.mark.parametrize("role", ["custom", "hookMessage", "developer"])
def test_texts_of_pi_and_its_fork_have_the_host_as_author(role: str) -> None:
    host_text = {"role": role, "content": [{"type": "text", "text": "Mind X."}], "timestamp": 1}
    asked = {"role": "user", "content": [{"type": "text", "text": "Do X."}], "timestamp": 2}
    conversation = _read(
        {"type": "session", "version": 3, "id": "s", "timestamp": STAMP, "cwd": "/app"},
        {"type": "message", "id": "a", "parentId": None, "timestamp": STAMP, "message": host_text},
        {"type": "message", "id": "b", "parentId": "a", "timestamp": STAMP, "message": asked},
    )
    assert (conversation.kind, conversation.format) == ("pi", "pi")
    first, second = (message.blocks[0] for message in conversation.messages)
    assert isinstance(first, Text)
    assert isinstance(second, Text)
    assert (first.text, first.author, second.author) == ("Mind X.", "host", None)
    assert formats.render(conversation.messages, format="pi") == [host_text, asked]


def _claude(kind: str, content: Any, **fields: Any) -> JsonObject:
    message = {"role": kind, "content": content, **fields.pop("message", {})}
    return {"type": kind, "timestamp": STAMP, "sessionId": "s", "message": message, **fields}


def test_claude_code_lines_of_one_api_message_are_joined() -> None:
    call: JsonObject = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    other: JsonObject = {**call, "id": "b"}
    results = [{"type": "tool_result", "tool_use_id": name, "content": name} for name in "ab"]
    conversation = _read(
        {"type": "summary", "summary": "x"},
        _claude("user", "go", cwd="/project"),
        _claude("assistant", [call], message={"id": "m1", "model": "claude-x"}),
        _claude("assistant", [other], message={"id": "m1", "usage": {"output_tokens": 5}}),
        _claude("user", results[:1]),
        _claude("user", results[1:]),
        _claude("assistant", [{"type": "text", "text": "side"}], isSidechain=True),
        _claude("assistant", [{"type": "text", "text": "done"}], message={"id": "m2"}),
    )
    assert (conversation.kind, conversation.format) == ("claude-code", "anthropic")
    assert [raw["content"] for raw in conversation.payload] == [
        "go",
        [call, other],
        results,
        [{"type": "text", "text": "done"}],
    ]
    assert conversation.payload[1]["usage"] == {"output_tokens": 5}
    assert (conversation.session_id, conversation.cwd) == ("s", "/project")
    assert conversation.model == "claude-x"
    assert {message.timestamp_seconds for message in conversation.messages} == {SECONDS}


def test_claude_code_conversation_starts_after_its_last_compaction() -> None:
    boundary = {"type": "system", "subtype": "compact_boundary", "content": "Compacted"}
    conversation = _read(
        _claude("user", "one"),
        boundary,
        _claude("user", "first summary", isCompactSummary=True),
        _claude("user", "two"),
        boundary,
        _claude("user", "second summary", isCompactSummary=True),
        _claude("user", "three", isMeta=True),
    )
    assert _texts(conversation) == ["second summary", "three"]
    older = _read(_claude("user", "one"), _claude("user", "summary", isCompactSummary=True))
    assert _texts(older) == ["summary"]


def test_queued_prompt_is_a_user_message_when_a_person_typed_it() -> None:
    def queued(prompt: Any, **given: Any) -> JsonObject:
        attachment = {"type": "queued_command", "prompt": prompt, **given}
        return {"type": "attachment", "sessionId": "s", "attachment": attachment}

    call = {"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": "make"}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "built"}
    image = {"type": "text", "text": "As in this picture."}
    conversation = _read(
        {"type": "user", "message": {"role": "user", "content": "Build it."}},
        {"type": "assistant", "message": {"role": "assistant", "content": [call]}},
        {"type": "queue-operation", "operation": "enqueue", "content": "Deploy it too."},
        {"type": "user", "message": {"role": "user", "content": [result]}},
        {"type": "attachment", "attachment": {"type": "task_reminder", "content": []}},
        queued("Deploy it too.", commandMode="prompt", origin={"kind": "human"}),
        queued([image], commandMode="prompt"),
        queued("<task-notification>done</task-notification>", commandMode="task-notification"),
        queued("A peer's findings", commandMode="prompt", origin={"kind": "peer"}, isMeta=True),
        queued(None, commandMode="prompt"),
        {"type": "assistant", "message": {"role": "assistant", "content": "Deployed."}},
    )
    assert [user_text(message) for message in conversation.messages] == [
        *("Build it.", "", "", "Deploy it too.", "As in this picture.", "", "", "")
    ]
    assert _texts(conversation)[5:7] == [
        *("<task-notification>done</task-notification>", "A peer's findings")
    ]


def _codex(kind: str, payload: Any) -> JsonObject:
    return {"timestamp": STAMP, "type": kind, "payload": payload}


def _item(role: str, text: str) -> JsonObject:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def test_codex_rollout_is_read_as_its_response_items() -> None:
    call = {"type": "function_call", "call_id": "1", "name": "shell", "arguments": "{}"}
    conversation = _read(
        _codex("session_meta", {"id": "u", "cwd": "/p", "base_instructions": {"text": "Be."}}),
        _codex("session_meta", {"id": "parent"}),
        _codex("turn_context", {"model": "gpt-a", "cwd": "/p"}),
        _codex("response_item", _item("user", "go")),
        _codex("event_msg", {"type": "agent_message", "message": "x"}),
        _codex("response_item", call),
        _codex("turn_context", {"model": "gpt-b", "cwd": "/q"}),
    )
    assert (conversation.kind, conversation.format) == ("codex", "openai-responses")
    assert conversation.payload == [_item("user", "go"), call]
    assert (conversation.session_id, conversation.cwd) == ("u", "/q")
    assert (conversation.model, conversation.system) == ("gpt-b", "Be.")
    assert conversation.messages[0].timestamp_seconds == SECONDS


def test_codex_compaction_replaces_earlier_items() -> None:
    before = [_codex("response_item", _item(role, role)) for role in ("user", "assistant")]
    after = _codex("response_item", _item("user", "after"))
    history = [_item("user", "kept"), {"type": "compaction", "encrypted_content": "e"}]
    replaced = _read(*before, _codex("compacted", {"replacement_history": history}), after)
    assert replaced.payload == [*history, _item("user", "after")]
    summarised = _read(*before, _codex("compacted", {"message": "summary"}), after)
    assert _texts(summarised) == ["user", "summary", "after"]


def _pi(id: str, parent: str | None, text: str) -> JsonObject:  # noqa: A002
    message = {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": 1}
    fields = {"type": "message", "id": id, "parentId": parent, "timestamp": STAMP}
    return {**fields, "message": message}


def test_pi_session_is_the_last_branch_after_its_last_compaction() -> None:
    conversation = _read(
        {"type": "session", "id": "u", "cwd": "/p", "timestamp": STAMP},
        _pi("1", None, "one"),
        _pi("2", "1", "two"),
        _pi("3", "2", "three"),
        _pi("x", "2", "a branch that was left"),
        {"type": "compaction", "id": "4", "parentId": "3", "summary": "sum",
         "firstKeptEntryId": "3"},
        {"type": "model_change", "id": "5", "parentId": "4", "modelId": "m"},
        {"type": "custom_message", "id": "6", "parentId": "5", "content": "custom"},
        {"type": "branch_summary", "id": "7", "parentId": "6", "summary": "branch"},
        _pi("8", "7", "four"),
    )  # fmt: skip
    assert _texts(conversation) == ["sum", "three", "custom", "branch", "four"]
    assert (conversation.session_id, conversation.cwd, conversation.model) == ("u", "/p", "m")
    assert conversation.messages[-1].timestamp_seconds == SECONDS


def _event(kind: str, **data: Any) -> JsonObject:
    """Return an event in the shape of Copilot CLI 1.0.78."""
    return {"type": kind, "data": data, "id": "e", "timestamp": STAMP, "parentId": None}


def test_copilot_events_are_read_as_messages_calls_and_results() -> None:
    request = {"toolCallId": "c1", "name": "view", "arguments": {"path": "a.py"}}
    failed = {"success": False, "error": {"message": "no such file", "code": "failure"}}
    conversation = _read(
        _event("session.start", sessionId="u", version=1, context={"cwd": "/work"}),
        _event("session.model_change", newModel="m-1", reasoningEffort=None),
        _event("system.message", role="system", content="You are a CLI."),
        _event("user.message", content="Look.", transformedContent="<now/>Look.", attachments=[]),
        _event("user.message", content="How to read a PDF.", source="skill-pdf"),
        _event("assistant.message", content="", toolRequests=[request], model="m-1"),
        {**_event("user.message", content="Told to one.", source="agent-u"), "agentId": "c1"},
        _event("assistant.message", content="Of a sub-agent.", parentToolCallId="c1"),
        _event("tool.execution_start", toolCallId="c1", toolName="view"),
        _event("tool.execution_complete", toolCallId="c1", **failed),
        _event("tool.execution_complete", toolCallId="of nobody", result={"content": "x"}),
        _event("session.compaction_complete", success=True, summaryContent="They looked."),
        _event("assistant.message", content="It is not there.", toolRequests=[], model="m-2"),
        _event("assistant.turn_end", turnId="0"),
    )
    assert (conversation.kind, conversation.format) == ("copilot", "openai-chat")
    assert (conversation.session_id, conversation.cwd) == ("u", "/work")
    assert (conversation.model, conversation.system) == ("m-2", "You are a CLI.")
    assert [message.role for message in conversation.messages] == [
        "user", "system", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert conversation.payload[0]["content"] == "Look."
    assert conversation.messages[2].blocks == (
        ToolCall("c1", "view", {"path": "a.py"}, source=conversation.payload[2]["tool_calls"][0]),
    )
    assert conversation.payload[3]["content"] == "Error: no such file"
    assert conversation.messages[4].timestamp_seconds is not None
    assert conversation.notes == ("line 12: Copilot compacted here; all messages are kept",)


@pytest.mark.parametrize("key", ["messages", "input", "history", "traj"])
def test_message_list_is_read_alone_or_under_its_usual_keys(key: str) -> None:
    payload = [{"role": "system", "content": "Be."}, {"role": "user", "content": "hi"}]
    for text in (json.dumps(payload), json.dumps({key: payload}, indent=2), _lines(*payload)):
        conversation = parse_file(text, name="file")
        assert (conversation.kind, conversation.payload) == ("messages", payload)


def test_request_body_is_read_with_its_system_prompt_tools_and_model() -> None:
    tools = [{"name": "f"}]
    anthropic = parse_file(
        json.dumps({
            "model": "m",
            "system": [{"type": "text", "text": "Be."}, {"type": "text", "text": "Brief."}],
            "tools": tools,
            "messages": [{"role": "user", "content": "hi"}],
        }),
        name="file",
    )  # fmt: skip
    assert (anthropic.model, anthropic.system, anthropic.tools) == ("m", "Be.\nBrief.", tools)
    gemini = parse_file(
        json.dumps({
            "systemInstruction": {"parts": [{"text": "Be."}]},
            "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        }),
        name="file",
    )  # fmt: skip
    assert (gemini.format, gemini.system, gemini.tools) == ("gemini", "Be.", None)
    responses = parse_file(json.dumps({"instructions": "Be.", "input": "hi"}), name="file")
    assert (responses.system, responses.payload) == ("Be.", [{"role": "user", "content": "hi"}])


def test_torn_last_line_is_skipped_with_a_note() -> None:
    complete = _lines(_claude("user", "one"), _claude("user", "é" * 10))
    for cut in range(1, 60):
        data = complete.encode("utf-8")[:-cut]
        conversation = read_conversation(data, name="file")
        torn = cut > 1
        assert len(conversation.messages) == (1 if torn else 2)
        assert bool(conversation.notes) == torn


@pytest.mark.parametrize(
    ("line", "note", "texts"),
    [
        (b'{"type": "user", ', "line 2 is no JSON object and is skipped", []),
        (b'{"type": "user", "message": {"role": "user", "content": "gnu", "x": NaN}}', "", ["gnu"]),
        (
            b"""{"type": "user", "x": %b, "message": {"content": "gnu"}}""" % (b"7" * 5000),
            "",
            ["gnu"],
        ),
        (b'{"type": "user", "message": "\xff"}', "line 2 is no JSON object", []),
        (b"42", "line 2 is no JSON object", []),
        (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "line 2 is no JSON object", []),
        (b'{"type": "user", "message": "gnu"}', "line 2: a", ["type: user\nmessage: gnu"]),
        (
            b'{"type": "user", "message": {"content": ["gnu", {"type": "text", "text": "a"}]}}',
            "line 2: a message has an unknown shape",
            ["role: user\ncontent: gnu\ntype: text\ntext: a"],
        ),
        (b'{"type": "user", "message": {"content": "gnu"}}', "", ["gnu"]),
    ],
    ids=["torn", "nan", "digits", "utf-8", "number", "deep", "no message", "bad block", "no role"],
)  # fmt: skip
def test_odd_line_is_skipped_or_becomes_text_with_a_note(
    line: bytes, note: str, texts: list[str]
) -> None:
    row = json.dumps(_claude("user", "one")).encode()
    conversation = read_conversation(b"\n".join([row, line, row, b""]), name="f.jsonl")
    assert _texts(conversation) == ["one", *texts, "one"]
    assert [found.startswith(note) for found in conversation.notes] == ([True] if note else [])


def test_export_of_opencode_is_read_from_any_line_and_others_become_text() -> None:
    def export(text: str) -> JsonObject:
        message = {"info": {"role": "user"}, "parts": [{"type": "text", "text": text}]}
        return {"info": {"id": f"ses_{text}", "directory": "/srv"}, "messages": [message]}

    conversation = _read({"x": "odd row"}, export("one"), export("the second"))
    assert (conversation.kind, conversation.session_id) == ("opencode", "ses_one")
    assert _texts(conversation) == ["one"]
    [note] = conversation.notes
    assert note.startswith("line 3 is another export and becomes text")
    assert {("row", "odd row"), ("row", "the second")} <= {*conversation.extra_texts}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("  \n\n", "is empty"),
        ("hello", "neither a JSON document nor JSON lines"),
        ('[{"role": "user",\n "content": }]', "line 2 column 13"),
        ("42", "holds a number, not a conversation"),
        ("[]", "holds no messages"),
        ('{"name": "x"}', "an object without messages; its fields are"),
        ('{"messages": []}', "holds no messages"),
        ('{"messages": [{"who": "x"}]}', "Message 0 fits no format"),
        ('{"messages": []}\n{"messages": []}', "holds 2 conversations"),
        ("[" * 100_000 + "]" * 100_000, "nests too deeply"),
    ],
)
def test_file_is_refused_when_it_has_no_conversation(text: str, problem: str) -> None:
    with pytest.raises(UnknownFormatError, match=problem):
        parse_file(text, name="f.json")


def test_file_is_refused_when_its_bytes_cannot_be_read() -> None:
    with pytest.raises(UnknownFormatError, match="damaged gzip data"):
        read_conversation(gzip.compress(b'{"messages": []}' * 99)[:-9], name="f.gz")
    compressed = zstandard.ZstdCompressor().compress(b'{"messages": []}' * 99)
    for cut in (compressed[:-9], compressed[:9] + b"\xff" * 9):
        with pytest.raises(UnknownFormatError, match="damaged zstd data"):
            read_conversation(cut, name="f.zst")
    with pytest.raises(UnknownFormatError, match="not UTF-8 text: byte 0"):
        read_conversation(b"\xff{}", name="f.json")


def test_file_is_refused_when_it_decompresses_to_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("context_compaction.formats.session_files.read.MAX_TEXT_BYTES", 1024 * 1024)
    with pytest.raises(UnknownFormatError, match="larger than 1 MB"):
        read_conversation(gzip.compress(b" " * (2 * 1024 * 1024)), name="f.gz")
    many = zstandard.ZstdCompressor().compress(b" " * (64 * 1024 * 1024))
    with pytest.raises(UnknownFormatError, match="larger than 1 MB"):
        read_conversation(many, name="f.zst")


def in_list(text: str) -> list[str]:
    return [text]


def in_object(text: str) -> dict[str, str]:
    return {"note": text}


SHAPES: list[Callable[[str], Any]] = [str, in_list, in_object]


@given(
    kind=st.sampled_from(["custom_message", "branch_summary", "compaction"]),
    key=st.sampled_from(["role", "customType", "details", "message", "content", "summary"]),
    shape=st.sampled_from(SHAPES),
)
def test_words_of_a_pi_row_are_kept_whichever_field_has_them(
    kind: str, key: str, shape: Callable[[str], Any]
) -> None:
    words = "The staging cluster is called ZEBRA-7."
    row = {"type": kind, "id": "b", "parentId": "a", key: shape(words)}
    conversation = _read(
        {"type": "session", "version": 3, "id": "s", "cwd": "/w"},
        {"type": "message", "id": "a", "message": {"role": "user", "content": "Deploy it."}},
        row,
        {"type": "message", "id": "c", "message": {"role": "user", "content": "Go on."}},
    )
    texts = [*_texts(conversation), *(text for _, text in conversation.extra_texts)]
    assert sum(words in text for text in texts) == 1

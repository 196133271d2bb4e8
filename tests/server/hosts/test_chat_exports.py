"""`import` reads the archives that claude.ai and ChatGPT export."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from mcp_server_compaction.cli import main
from mcp_server_compaction.hosts import chat_exports
from mcp_server_compaction.hosts.chat_exports import chats_in, is_export

CLAUDE: dict[str, Any] = {
    "uuid": "11111111-2222-3333-4444-555555555555",
    "name": "Baking bread",
    "summary": "",
    "created_at": "2025-03-01T10:00:00.000000Z",
    "updated_at": "2025-03-01T10:05:00.000000Z",
    "account": {"uuid": "a"},
    "chat_messages": [
        {
            "uuid": "m1",
            "text": "How long does sourdough rise?",
            "content": [{"type": "text", "text": "How long does sourdough rise?", "citations": []}],
            "sender": "human",
            "created_at": "2025-03-01T10:00:00.000000Z",
            "attachments": [
                {"file_name": "notes.txt", "file_size": 9, "extracted_content": "levain at dusk"}
            ],
            "files": [{"file_name": "loaf.jpg"}],
        },
        {
            "uuid": "m2",
            "text": "",
            "content": [
                {"type": "thinking", "thinking": "It depends on warmth."},
                {"type": "tool_use", "name": "web_search", "input": {"query": "rise time"}},
                {"type": "tool_result", "name": "web_search", "content": [{"text": "4 to 6 h"}]},
                {"type": "text", "text": "About five hours."},
            ],
            "sender": "assistant",
            "created_at": "2025-03-01T10:01:00.000000Z",
        },
    ],
}


def node(key: str, parent: str | None, role: str, content: Any, **author: str) -> dict[str, Any]:
    message = {
        "id": key,
        "author": {"role": role, **author},
        "create_time": 1_740_000_000.5,
        "content": content,
    }
    return {"id": key, "message": message, "parent": parent, "children": []}


def text(*parts: Any) -> dict[str, Any]:
    return {"content_type": "text", "parts": list(parts)}


CHATGPT: dict[str, Any] = {
    "title": "Star names",
    "create_time": 1_740_000_000.0,
    "conversation_id": "67aaaaaa-0000-8000-aaaa-bbbbbbbbbbbb",
    "current_node": "d",
    "mapping": {
        "root": {"id": "root", "message": None, "parent": None, "children": ["a"]},
        "a": node("a", "root", "user", text("Which star is the brightest?")),
        "old": node("old", "a", "assistant", text("Betelgeuse, surely.")),
        "b": node("b", "a", "assistant", {"content_type": "code", "text": "search('star')"}),
        "c": node("c", "b", "tool", {"content_type": "execution_output", "text": "-1.46 mag"}),
        "d": node(
            "d",
            "c",
            "assistant",
            {
                "content_type": "multimodal_text",
                "parts": [
                    {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"},
                    "Sirius is the brightest.",
                ],
            },
        ),
    },
}


def run(tmp_path: Path, *arguments: object, code: int = 0) -> str:
    words = ["--archive", str(tmp_path / "archive"), *map(str, arguments)]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.output


def zipped(path: Path, **files: Any) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(
                name, content if isinstance(content, str | bytes) else json.dumps(content)
            )
    return path


def test_search_and_read_cover_imported_chats_of_both_services(tmp_path: Path) -> None:
    claude = zipped(tmp_path / "claude.zip", **{"conversations.json": [CLAUDE], "users.json": []})
    split = {
        "export/conversations-000.json": [CHATGPT],
        "export/conversations-001.json": [],
        "__MACOSX/export/conversations-000.json": "junk",
        "export/chat.html": "<html>",
    }
    chatgpt = zipped(tmp_path / "chatgpt.zip", **split)
    output = run(tmp_path, "import", claude, chatgpt)
    assert "in 2 sessions" in output
    for words, found in {
        "sourdough rise": "How long",
        "levain dusk": "levain at dusk",
        "rise time web_search": "4 to 6 h",
        "brightest Sirius": "Sirius is",
        "Betelgeuse": "surely",
        "1.46 mag": "[tool]",
    }.items():
        assert found in run(tmp_path, "search", words), words
    listed = run(tmp_path, "sessions")
    assert "Baking bread" in listed
    assert "Star names" in listed
    shown = run(tmp_path, "read", f"{CHATGPT['conversation_id']}/0-9")
    assert "Sirius" in shown
    assert "2 unchanged" in run(tmp_path, "import", claude, chatgpt)


def test_import_adds_only_new_messages_when_a_later_export_has_more(tmp_path: Path) -> None:
    file = zipped(tmp_path / "export.zip", **{"conversations.json": [CLAUDE]})
    assert "2 new messages" in run(tmp_path, "import", file)
    more: dict[str, Any] = {"sender": "human", "text": "And in winter?", "content": []}
    longer: dict[str, Any] = {**CLAUDE, "chat_messages": [*CLAUDE["chat_messages"], more]}
    zipped(file, **{"conversations.json": [longer]})
    assert "1 new messages" in run(tmp_path, "import", file)


def test_unpacked_export_in_a_folder_is_imported(tmp_path: Path) -> None:
    (tmp_path / "export").mkdir()
    file = tmp_path / "export" / "conversations.json"
    file.write_text(json.dumps([CLAUDE, CHATGPT]), encoding="utf-8")
    assert "in 2 sessions" in run(tmp_path, "import", file.parent)


def test_odd_chats_are_reported_and_all_others_are_imported(tmp_path: Path) -> None:
    odd: list[Any] = [
        7,
        {"chat_messages": []},
        {"uuid": 5, "name": 6, "chat_messages": [None, {"sender": [], "content": 9, "text": 8}]},
        {"mapping": {"a": {"parent": "b"}, "b": {"parent": "a", "message": {"content": []}}}},
        {**CHATGPT, "current_node": "gone", "mapping": {"x": {"parent": "x", "message": 1}}},
    ]
    output = run(
        tmp_path, "import", zipped(tmp_path / "x.zip", **{"conversations.json": [*odd, CLAUDE]})
    )
    assert "in 1 sessions" in output
    assert output.count("was skipped") == len(odd)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ({"other.json": []}, "has no conversations.json"),
        ({"conversations.json": json.dumps([CLAUDE])[:-30]}, "cannot be read"),
        ({"conversations.json": b"[" * 100_000}, "cannot be read"),
        ({"conversations.json": json.dumps([CLAUDE])[:-1]}, "ends before its list"),
    ],
)
def test_bad_archive_is_reported_with_a_reason(
    tmp_path: Path, content: dict[str, Any], error: str
) -> None:
    file = zipped(tmp_path / "x.zip", **content)
    done = CliRunner().invoke(main, ["--archive", str(tmp_path / "a"), "import", str(file)])
    assert error in done.output


def test_damaged_or_huge_entry_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = zipped(tmp_path / "x.zip", **{"conversations.json": [CLAUDE] * 50})
    data = bytearray(file.read_bytes())
    data[200:260] = bytes(60)
    damaged = tmp_path / "damaged.zip"
    damaged.write_bytes(data)
    assert "Download it again" in run(tmp_path, "import", damaged, code=1)
    monkeypatch.setattr(chat_exports, "MAX_BYTES", 1 << 20)
    bomb = zipped(tmp_path / "bomb.zip", **{"conversations.json": b" " * 3_000_000})
    assert bomb.stat().st_size < 10_000
    assert "more than 1 MiB and was skipped" in run(tmp_path, "import", bomb)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from([
            "uuid", "name", "title", "chat_messages", "mapping", "current_node", "sender",
            "content", "text", "type", "attachments", "files", "extracted_content", "created_at",
            "parent", "message", "author", "role", "parts", "content_type", "create_time", "a", "b",
        ]),
        inner,
        max_size=5,
    ),
    max_leaves=30,
)  # fmt: skip


@given(st.lists(json_values, max_size=4))
def test_any_json_is_read_without_an_error(values: list[Any]) -> None:
    notes: list[str] = []
    chats = [*chats_in(json.dumps(values).encode(), notes.append)]
    assert len(chats) + len(notes) == len(values)
    for chat in chats:
        assert all(raw["content"].strip() for branch in chat.branches for raw, _ in branch)


def test_only_lists_of_chats_are_recognised_as_an_export() -> None:
    assert is_export(json.dumps([CLAUDE]).encode("utf-8-sig"))
    assert is_export(json.dumps([CHATGPT], indent=1).encode())
    assert not is_export(json.dumps([{"role": "user", "content": "x"}]).encode())

"""Repeated reads become notes, and changes of files on disk are reported."""

from pathlib import Path
from typing import Any

import pytest
from context_compaction.archive.local.archive import open_archive
from context_compaction.file_access import roots_of
from context_compaction.formats import render
from context_compaction.formats.convert import convert
from context_compaction.messages.model import result_text
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult

from tests.support.converted import PROVIDER_FORMATS
from tests.support.json_types import Json
from tests.support.provider_rules import problems
from tests.support.small import answered, assistant, compacted, lines, read, result_of, user

TEXT = lines("file", 90)
CHANGED = "These files changed on disk after they were read: "


def numbered(text: str, first: int = 1) -> str:
    return "\n".join(f"{n:>6}\t{line}" for n, line in enumerate(text.splitlines(), first))


def chatter(name: str, calls: int = 9) -> list[Json]:
    return [
        message
        for n in range(calls)
        for message in answered(f"{name}{n}", "Bash", lines(f"{name}{n}", 90), command=f"run {n}")
    ]


async def call(
    tmp_path: Path, payload: list[Json], *, with_roots: bool = True, **options: Any
) -> CompactResult:
    """Call `compact` on a newly opened archive, as another process does."""
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    read_file = roots_of([folder]).reader(str(folder)) if with_roots else None
    options = {"format": "anthropic", "session_id": "s", "target_tokens": 6_000, **options}
    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
        request = CompactRequest(**options)
        return await compact(payload, request, archive=archive, read_file=read_file)


async def receipts(tmp_path: Path) -> list[Json]:
    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
        return await archive.receipts("s")


def changes(answer: CompactResult) -> list[str]:
    return [warning for warning in answer.warnings if warning.startswith(CHANGED)]


async def test_older_read_becomes_a_pointer_when_another_tool_reads_the_same_range() -> None:
    payload = [
        user("go"),
        *answered("a", "Read", TEXT, file_path="src/x.py", offset=10, limit=90),
        *chatter("c", 3),
        *answered("b", "fs__view_file", TEXT, path="./src/x.py", view_range=[10, 99]),
        user("And now?"),
    ]
    answer = await compacted(payload, mode="micro", settings={"min_result_tokens": 100_000})
    [note] = [m for m in answer.messages if "FILE_UNCHANGED" in str(m)]
    text = note["content"][0]["content"]
    assert text.startswith("[Old tool result cleared: Read,")
    assert "FILE_UNCHANGED: read again below with the same content" in text
    assert "read_persisted_output o_" in text
    assert "\n" not in text
    assert result_text(result_of(read(answer.messages), "b")) == TEXT


async def test_older_read_is_cleared_when_a_later_read_of_its_range_differs() -> None:
    payload = [
        user("go"),
        *answered("a", "Read", TEXT, file_path="x.py", offset=10, limit=90),
        *answered("other", "Read", lines("other", 90), file_path="x.py", offset=200, limit=90),
        *answered("b", "Read", TEXT.replace("37", "38"), file_path="x.py", offset=10, limit=90),
        user("And now?"),
    ]
    answer = await compacted(payload, mode="micro", settings={"min_result_tokens": 100_000})
    assert [edit.note for edit in answer.edits] == ["superseded by a later read of x.py"]
    assert [edit.index for edit in answer.edits] == [2]


async def test_read_stays_when_the_later_result_is_a_placeholder() -> None:
    payload = [
        user("go"),
        *answered("a", "Read", TEXT, file_path="x.py"),
        *answered(
            "b", "Read", "[Old tool result cleared: Read, 9 chars; read_…]", file_path="x.py"
        ),
        user("And now?"),
    ]
    answer = await compacted(payload, mode="micro", settings={"min_result_tokens": 100_000})
    assert answer.edits == ()


async def test_change_is_reported_when_the_file_was_read_before_a_compaction(
    tmp_path: Path,
) -> None:
    file = tmp_path / "work" / "x.py"
    file.parent.mkdir()
    file.write_text(TEXT, encoding="utf-8")
    earlier = [user("go"), *answered("r", "Read", numbered(TEXT), file_path="x.py"), *chatter("a")]
    first = await call(tmp_path, earlier, settings={"restore_files": 0})
    assert first.status == "compacted"
    assert changes(first) == []
    assert "tool_use_id': 'r'" not in str(first.messages), "the read has left the context"

    file.write_text(TEXT + "\nmore", encoding="utf-8")
    extended = [*first.messages, *chatter("b")]
    second = await call(tmp_path, extended, settings={"restore_files": 0})
    [warning] = changes(second)
    assert "x.py" in warning
    assert "Read them again" in warning
    assert warning in second.receipt["warnings"]

    # The warning stays until the conversation reads the file again.
    third = await call(tmp_path, [*second.messages, *chatter("c")], settings={"restore_files": 0})
    assert changes(third)
    again = answered("r2", "Read", numbered(TEXT + "\nmore"), file_path="x.py")
    fourth = await call(tmp_path, [*third.messages, *again, *chatter("d")])
    assert changes(fourth) == []


async def test_receipt_contains_path_range_hashes_and_time_of_files(tmp_path: Path) -> None:
    file = tmp_path / "work" / "x.py"
    file.parent.mkdir()
    file.write_text(TEXT, encoding="utf-8")
    part = "\n".join(TEXT.splitlines()[9:30])
    payload = [
        user("go"),
        *answered("r", "Read", numbered(part, 10), file_path="x.py", offset=10, limit=21),
        *answered("o", "Read", "elsewhere", file_path="/elsewhere/y.py"),
        *chatter("a"),
    ]
    await call(tmp_path, payload)
    [receipt] = await receipts(tmp_path)
    states = {state["path"]: state for state in receipt["state"]["files"]}
    inside, outside = states["x.py"], states["/elsewhere/y.py"]
    assert inside["range"] == "10-30"
    assert inside["seq"] == 2
    assert len(inside["seen_sha256"]) == len(inside["disk_sha256"]) == 64
    assert inside["modified_seconds"] == file.stat().st_mtime
    assert outside["seen_sha256"]
    assert outside["disk_sha256"] == ""
    assert outside["modified_seconds"] == 0


async def test_change_is_not_reported_again_when_the_file_was_restored(tmp_path: Path) -> None:
    file = tmp_path / "work" / "x.py"
    file.parent.mkdir()
    file.write_text("answer = 1\n", encoding="utf-8")
    earlier = [user("go"), *answered("r", "Read", "answer = 1\n", file_path="x.py"), *chatter("a")]
    file.write_text("answer = 2\n", encoding="utf-8")
    first = await call(tmp_path, earlier, mode="full", target_tokens=None)
    assert changes(first)
    assert "x.py (changed on disk since it was last read here)\nanswer = 2" in str(
        first.messages
    ).replace("\\n", "\n")
    again = await call(tmp_path, earlier, mode="full", target_tokens=None)
    assert again.messages == first.messages, "equal calls return equal bytes"
    extended = [*first.messages, *chatter("b"), assistant("Done."), user("Go on.")]
    second = await call(tmp_path, extended, mode="full", target_tokens=None)
    assert changes(second) == []
    file.write_text("answer = 3\n", encoding="utf-8")
    third = await call(tmp_path, [*second.messages, *chatter("c")], mode="full", target_tokens=None)
    assert changes(third)


async def test_files_outside_the_roots_are_never_read(tmp_path: Path) -> None:
    outside = tmp_path / "x.py"
    outside.write_text("answer = 2\n", encoding="utf-8")
    payload = [
        user("go"),
        *answered("r", "Read", "answer = 1\n", file_path=str(outside)),
        *chatter("a"),
    ]
    assert changes(await call(tmp_path, payload)) == []
    assert changes(await call(tmp_path, payload, with_roots=False, session_id="other")) == []


CLAUDE_CODE: dict[str, Any] = {
    "policy": "claude-code",
    "target_tokens": None,
    "context_window": 200_000,
}


def notes_in(messages: list[Json]) -> list[str]:
    return [str(m["content"]) for m in messages if "<changed_files>" in str(m["content"])]


async def test_claude_code_policy_notes_each_change_once_at_the_next_turn(
    tmp_path: Path,
) -> None:
    file = tmp_path / "work" / "x.py"
    file.parent.mkdir()
    file.write_text(TEXT, encoding="utf-8")
    payload = [user("go"), *answered("r", "Read", numbered(TEXT), file_path="x.py")]
    quiet = await call(tmp_path, payload, **CLAUDE_CODE)
    assert (quiet.status, quiet.messages) == ("unchanged", payload)

    file.write_text(TEXT + "\nmore", encoding="utf-8")
    payload += [assistant("Read."), user("And now?")]
    first = await call(tmp_path, payload, **CLAUDE_CODE)
    assert first.messages[:-2] == payload[:-1], "earlier messages do not change"
    assert first.messages[-1] is payload[-1], "the request is the last message"
    [note] = notes_in(first.messages)
    assert "x.py" in note
    assert not problems(first.messages, "anthropic", original=payload)

    extended = [*first.messages, *answered("b", "Bash", "ok", command="ls")]
    second = await call(tmp_path, extended, **CLAUDE_CODE)
    assert second.messages == extended, "each change is noted once"

    file.write_text(TEXT + "\nmore and more", encoding="utf-8")
    third = await call(tmp_path, extended, **CLAUDE_CODE)
    assert third.messages[:-1] == extended
    assert notes_in(third.messages[-1:]), "after results, the note is the last message"
    assert not problems(third.messages, "anthropic", original=extended)

    seen = [*third.messages, *answered("s", "Read", numbered(file.read_text()), file_path="x.py")]
    fourth = await call(tmp_path, seen, **CLAUDE_CODE)
    assert fourth.messages == seen
    assert changes(fourth) == []


@pytest.mark.parametrize("format", PROVIDER_FORMATS)
async def test_changed_files_note_is_valid_in_every_format(tmp_path: Path, format: str) -> None:
    file = tmp_path / "work" / "x.py"
    file.parent.mkdir()
    file.write_text(TEXT + "\nmore", encoding="utf-8")
    talk = [user("go"), *answered("r", "Read", TEXT, file_path="x.py")]
    for session, payload in (("a", talk), ("b", [*talk, assistant("Read."), user("And now?")])):
        given = render(convert(read(payload), to=format), format=format)
        options: dict[str, Any] = {**CLAUDE_CODE, "format": format, "session_id": session}
        answer = await call(tmp_path, given, **options)
        assert "<changed_files>" in str(answer.messages)
        assert not problems(answer.messages, format, original=given)


async def test_change_is_not_noted_when_the_mode_leaves_the_list_alone(tmp_path: Path) -> None:
    file = tmp_path / "work" / "x.py"
    file.parent.mkdir()
    file.write_text(TEXT + "\nmore", encoding="utf-8")
    payload = [user("go"), *answered("r", "Read", numbered(TEXT), file_path="x.py")]
    for changed in ({"mode": "record"}, {"mode": "plan"}, {"policy": "default"}):
        options: dict[str, Any] = {**CLAUDE_CODE, **changed}
        answer = await call(tmp_path, payload, **options)
        assert answer.messages == payload


async def test_claude_code_policy_replaces_a_repeated_read_at_once() -> None:
    other = TEXT.replace("file 7", "FILE 7")
    payload = [
        user("go"),
        *answered("a", "Read", TEXT, file_path="x.py"),
        *answered("b", "Read", other, file_path="x.py"),
        *answered("c", "Read", TEXT, file_path="x.py", offset=1, limit=90),
        *answered("d", "Read", TEXT, file_path="y.py"),
        *answered("e", "Read", TEXT, file_path="x.py"),
    ]
    result = await compacted(payload, policy="claude-code")
    assert result.messages[:-1] == payload[:-1], "cached messages do not change"
    assert all(new is old for new, old in zip(result.messages[:-1], payload[:-1], strict=True))
    [edit] = result.edits
    stub = result_text(result_of(read(result.messages), "e"))
    assert stub.startswith("[FILE_UNCHANGED: same content as the earlier read above]")
    assert edit.pointers[0] in stub
    again = await compacted([*result.messages, assistant("Yes.")], policy="claude-code")
    assert again.status == "unchanged"


async def test_repeated_read_stays_when_the_earlier_text_is_cleared_or_differs() -> None:
    cleared = "[FILE_UNCHANGED: x] [archived: 9 chars; read_persisted_output o_" + "0" * 24 + "]"
    for earlier in (TEXT + "\nend", cleared):
        payload = [
            user("go"),
            *answered("a", "Read", earlier, file_path="x.py"),
            *answered("b", "Read", TEXT, file_path="x.py"),
        ]
        assert (await compacted(payload, policy="claude-code")).status == "unchanged"


def own_change(kind: str, file: Path) -> list[Json]:
    """Change `file`, and return the call of the agent that did it."""
    before = file.read_text(encoding="utf-8")
    old, new = "value_file_37", "value_file_3700"
    file.write_text(before.replace(f"{old}\n", f"{new}\n"), encoding="utf-8")
    if kind == "Edit":
        words = {"file_path": str(file), "old_string": f"{old}\n", "new_string": f"{new}\n"}
        return answered("e", "Edit", "The file has been updated.", **words)
    program = (
        f"sed -i 's/{old}$/{new}/' {file}" if kind == "sed" else f"perl -pi -e 's/a/b/' {file}"
    )
    return answered("e", "Bash", "", command=program)


@pytest.mark.parametrize("kind", ["nothing", "Edit", "sed", "perl"])
@pytest.mark.parametrize("own_turn", [0, 1])
@pytest.mark.parametrize("foreign_turn", [2, None])
async def test_foreign_change_is_reported_when_the_agent_changed_the_file_too(
    tmp_path: Path, kind: str, own_turn: int, foreign_turn: int | None
) -> None:
    file = tmp_path / "work" / "y.py"
    file.parent.mkdir()
    file.write_text(TEXT, encoding="utf-8")
    payload = [user("go"), *answered("r", "Read", TEXT, file_path=str(file))]
    reported: list[int] = []
    for turn in range(4):
        if turn == own_turn and kind != "nothing":
            payload += own_change(kind, file)
        if turn == foreign_turn:
            file.write_text(file.read_text(encoding="utf-8") + "# a foreign line\n")
        payload += [assistant(f"done {turn}"), user(f"more {turn}")]
        answer = await call(tmp_path, payload, target_tokens=None, policy="claude-code")
        reported.append(len(changes(answer)))
        payload = answer.messages
    assert reported == ([0, 0, 0, 0] if foreign_turn is None else [0, 0, 1, 1])
    assert str(payload).count("changed on disk") == (0 if foreign_turn is None else 1)

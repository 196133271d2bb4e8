"""Fuzz tests: damaged real transcripts, random command lines, and all inputs that failed before.

`test_any_arguments` has random tool arguments, `test_stdio_frames` random lines of standard input.
`tests.support.fuzz` sets the number of examples.
"""

import json
from pathlib import Path

import anyio
import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from mcp_server_compaction.cli import main
from mcp_server_compaction.config import Config

from tests.server.helpers import Json, answer_of, connect, text_of
from tests.support.fuzz import (
    FUZZ,
    NIGHTLY_SECONDS,
    ODD_TEXTS,
    corpus,
    save_if_failing,
    transcripts,
)

from .test_any_arguments import call as call_tool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(NIGHTLY_SECONDS)]

OPTIONS: st.SearchStrategy[Json] = st.fixed_dictionaries({
    "mode": st.sampled_from(["auto", "full", "micro", "plan", "record", "reactive"]),
    "target_tokens": st.sampled_from([1, 200, 1_000, 4_000]),
    "policy": st.sampled_from(["default", "economy", "claude-code", "four-layer", "timeline"]),
})


def as_text(case: Json) -> str:
    """Write the rows of a case to a file, truncated if the case says so."""
    text = "\n".join(json.dumps(row) for row in case["rows"])
    if case["cut"] is not None:
        at = int(case["cut"][0] * len(text))
        text = text[:at] + case["cut"][1] + text[at + 1 :]
    return text


async def check_transcript(config: Config, files: Path, case: Json) -> None:
    """Check that a transcript is compacted or refused with a message, as a list and as a file."""
    path = anyio.Path(files / "s.jsonl")
    await path.write_text(as_text(case), encoding="utf-8", errors="surrogatepass")
    sources: list[Json] = [{"transcript_path": str(path)}]
    if case["format"] is not None and not case["cut"]:
        rows = {"messages": case["rows"], "options": {"format": case["format"]}}
        sources.append(rows | {"reply": "messages"})
    async with connect(config) as client:
        for source in sources:
            result = await client.call_tool("compact_messages", source | case["wishes"])
            assert text_of(result)
            if result.is_error or "messages" not in source or case["wishes"]["mode"] == "plan":
                continue
            answer = answer_of(result)
            returned = answer.get("messages") or source["messages"]
            if answer["status"] != "no_progress" and returned:
                again = await client.call_tool("compact_messages", {**source, "messages": returned})
                assert not again.is_error, text_of(again)


def test_damaged_real_transcript_is_compacted_or_refused(config: Config, files: Path) -> None:
    @FUZZ
    @given(transcripts(), OPTIONS)
    def run(case: Json, variants: Json) -> None:
        case = {**case, "wishes": variants}
        with save_if_failing("transcripts", case):
            anyio.run(check_transcript, config, files, case)

    run()


# Arguments that an operating system can pass: no NUL; surrogates for bytes that are no UTF-8.
ARGUMENTS = (*(text for text in ODD_TEXTS if not {"\0", "\ud800"} & {*text}), "a\udc80b")


def _values(parameter: click.Parameter) -> st.SearchStrategy[str]:
    odd = st.sampled_from(ARGUMENTS) | st.integers().map(str)
    if isinstance(parameter.type, click.Choice):
        return st.sampled_from(list(parameter.type.choices)) | odd
    if isinstance(parameter.type, click.Path):
        return st.sampled_from(["good.jsonl", "bad.jsonl", "good.jsonl", ".", "none"]) | odd
    return st.sampled_from(["s", "needle_7", "1", "50%", "10d", "default", "200000"]) | odd


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A command that ends by itself, its arguments, and a few options of any value."""
    context = click.Context(main)
    name = draw(st.sampled_from(sorted({*main.list_commands(context)} - {"serve", "view"})))
    line = [name]
    command = main.get_command(context, name)
    assert command is not None
    for parameter in command.params:
        value = draw(_values(parameter))
        if isinstance(parameter, click.Argument):
            if parameter.required or draw(st.booleans()):
                line.append(value)
        elif draw(st.integers(0, 3)) == 0:
            is_flag = isinstance(parameter, click.Option) and parameter.is_flag
            line += [parameter.opts[0]] if is_flag else [parameter.opts[0], value]
    return line


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a good file, a bad one and an archive; nothing outside it is touched."""
    for variable, name in (("HOME", "."), ("XDG_CACHE_HOME", "c"), ("XDG_DATA_HOME", "d")):
        monkeypatch.setenv(variable, str(tmp_path / name))
    monkeypatch.setenv("MCP_COMPACTION_ARCHIVE", str(tmp_path / "archive"))
    monkeypatch.chdir(tmp_path)
    rows = [
        {"role": role, "content": f"needle_{n} " * 50}
        for n in range(6)
        for role in ("user", "assistant")
    ]
    good = "\n".join(map(json.dumps, rows))
    (tmp_path / "good.jsonl").write_text(good, encoding="utf-8")
    (tmp_path / "bad.jsonl").write_text(good[:500] + '\n{"role": 7}\n', encoding="utf-8")
    done = CliRunner().invoke(main, ["compact", "good.jsonl", "--session", "s", "--mode", "record"])
    assert done.exit_code == 0, done.output
    return tmp_path


def check_command(line: list[str]) -> None:
    """Check that the command succeeds, or prints an error or the problems that it found."""
    done = CliRunner().invoke(main, line, input="")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    assert done.exit_code in (0, 1, 2)
    assert "Traceback" not in done.output
    assert done.exit_code == 0 or done.output


def test_any_command_line_succeeds_or_fails_with_a_message(workplace: Path) -> None:
    @FUZZ
    @given(command_lines())
    def run(line: list[str]) -> None:
        with save_if_failing("command_lines", line):
            check_command(line)

    run()


@pytest.mark.parametrize("name", corpus("command_lines"))
def test_a_command_line_that_failed_once_does_not(workplace: Path, name: str) -> None:
    check_command(corpus("command_lines")[name])


@pytest.mark.parametrize("name", corpus("transcripts"))
async def test_a_transcript_that_failed_once_does_not(
    config: Config, files: Path, name: str
) -> None:
    await check_transcript(config, files, corpus("transcripts")[name])


@pytest.mark.parametrize("name", corpus("arguments"))
async def test_arguments_that_failed_once_do_not(config: Config, name: str) -> None:
    async with connect(config) as client:
        first_call: Json = {
            "messages": [{"role": "user", "content": "needle_7"}],
            "session_id": "s",
        }
        answer_of(await client.call_tool("compact_messages", first_call))
        await call_tool(client, *corpus("arguments")[name])
        await client.list_resources()

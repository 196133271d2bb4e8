"""The work of a compaction grows linearly with its input."""

import cProfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from context_compaction import CompactRequest, InvalidMessageError, compact, formats, open_archive

from tests.support.json_types import Json


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def chat(*texts: str) -> list[Json]:
    """Return user messages with an answer to each."""
    return [m for text in texts for m in (user(text), {"role": "assistant", "content": "ok"})]


def calls(*specs: tuple[str, Json, str]) -> list[Json]:
    """Return tool calls with their results."""
    messages: list[Json] = [user("Fix the parser.")]
    for number, (name, arguments, result) in enumerate(specs):
        call = {"type": "tool_use", "id": f"t{number}", "name": name, "input": arguments}
        output = {"type": "tool_result", "tool_use_id": f"t{number}", "content": result}
        messages += [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [output]},
        ]
    return messages


def bash(command: str) -> tuple[str, Json, str]:
    return "Bash", {"command": command}, "ok"


def edits(n: int) -> list[Json]:
    text = "".join(f"x{i}=1\n" for i in range(n))
    changes = [{"old_string": f"x{i}=1\n", "new_string": f"x{i}=2\n"} for i in range(n)]
    return calls(
        ("Write", {"file_path": "a.py", "content": text}, "File created"),
        *(("Edit", {"file_path": "a.py", **change}, "ok") for change in changes),
    )


def reads(n: int) -> list[Json]:
    ranges = [{"file_path": "a.py", "offset": start, "limit": 1} for start in range(1, 2 * n, 2)]
    return calls(*(("Read", item, f"{item['offset']:6}\tx{i}\n") for i, item in enumerate(ranges)))


def growing_file(n: int) -> list[Json]:
    change = {"old_string": "x", "new_string": "xx", "replace_all": True}
    return calls(
        ("Write", {"file_path": "a.py", "content": "x"}, "ok"),
        ("MultiEdit", {"file_path": "a.py", "edits": [change] * n}, "ok"),
        *(bash("sed -i 's/x/xxxxxxxx/g' a.py") for _ in range(n)),
    )


def copies(n: int) -> list[Json]:
    written = [
        ("Write", {"file_path": f"d/a{i}.py", "content": "a\n" * 10}, "ok") for i in range(n)
    ]
    return calls(*written, *(bash(f"cp -r d d/x{i}; mv d/a{i}.py e{i}.py") for i in range(n)))


def script(n: int) -> list[Json]:
    doubled = "t=t+t\n" * n
    return calls(bash(f"python3 - <<'EOF'\nt='a'\n{doubled}for i in (1,1): u=t.find('b')\nEOF"))


KINDS: dict[str, Callable[[int], list[Json]]] = {
    **{
        f"brackets {mark}": lambda n, mark=mark: chat("look " + mark * n * 100)
        for mark in ("<s", "[", "```\n", "> ", "<pin>")
    },
    "messages": lambda n: chat(*(f"q {i}" for i in range(n))),
    "rules": lambda n: chat(
        *(f"Never touch file{i}.py and always tell me about value {i}." for i in range(n))
    ),
    "changes": lambda n: chat(*(f"Use port {i} instead of {i - 1} from now on." for i in range(n))),
    "pins": lambda n: chat(*(f"<pin>value {i} is {i * 7}</pin>" for i in range(n))),
    "pins in one": lambda n: chat("\n".join(f"<pin>value {i}</pin>" for i in range(n))),
    "edits": edits,
    "reads": reads,
    "growing files": growing_file,
    "copies": copies,
    "script": script,
    "heredoc": lambda n: calls(bash("cat > m.cpp <<\\EOF\n" + "a << b << c; \\\n" * n + "EOF")),
    "minified": lambda n: calls(
        ("Read", {"file_path": "a.js"}, "     1\t" + "function(e){return e.version};" * n),
        bash("sed -i 's/.*sourceMap.*version.*//' a.js"),
    ),
}


async def in_this_thread(work: Callable[..., Any], *arguments: Any, **_options: Any) -> Any:
    """Run `work` in this thread, because the profiler sees only this thread."""
    return work(*arguments)


@pytest.mark.parametrize("kind", KINDS)
async def test_work_grows_linearly_with_the_input(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(to_thread, "run_sync", in_this_thread)
    counts: list[int] = []
    for size in (8, 100, 400):  # the first call loads modules and tables
        messages = [*KINDS[kind](size), {"role": "assistant", "content": f"{size}"}, user("next")]
        async with open_archive(tmp_path / str(size)) as archive:
            request = CompactRequest(mode="full", context_window=60_000, target_tokens=2_000)
            profile = cProfile.Profile()
            with profile:
                await compact(messages, request, archive=archive)
        counts.append(sum(entry.callcount for entry in profile.getstats()))
    # Two doublings, because one doubling may also change the bounded number of fill passes.
    assert counts[2] <= 2.3**2 * counts[1], counts


@pytest.mark.parametrize("place", ["content", "parts", "content of a result"])
def test_content_list_of_numbers_is_refused_at_its_first_element(place: str) -> None:
    counts: list[int] = []
    for size in (10, 10, 10_000):
        zeros: list[Any] = [0] * size
        result = {"type": "tool_result", "tool_use_id": "t", "content": zeros}
        content = {"content": [result]} if place == "content of a result" else {place: zeros}
        profile = cProfile.Profile()
        with profile, pytest.raises(InvalidMessageError, match=r"\[0\] is a number"):
            formats.parse([{"role": "user", **content}])
        counts.append(sum(entry.callcount for entry in profile.getstats()))
    assert counts[2] <= 1.1 * counts[1]

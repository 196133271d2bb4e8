"""Count the functions and files that one call runs through.

Run: python benchmarks/trace.py [--names | --files] [--tree FOLDER]

Three calls of `compact()` are traced, each with a new archive after a warm-up call: a short list
with nothing to do, eighty messages compacted to 5,000 tokens, and `examples/pi-session.jsonl`
compacted to 10,000. The caller names the format.

- functions: distinct functions of the library that ran. Comprehensions count as part of the
  function around them.
- files: distinct files of these functions.
- changes of file: how often the file changes if the functions are read in the order of their first
  call.
- thread hops: calls of `anyio.to_thread.run_sync`, also by the archive.

The script uses public names only, so `--tree` may be the folder of any version.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any

import anyio
from anyio import to_thread

_PACKAGE = "/context_compaction/"


@dataclass(slots=True)
class Trace:
    """Functions that ran.

    Attributes:
        code: Distinct functions in the order of their first call.
        calls: Number of calls by function name.
        hops: Number of calls that went to a thread.
    """

    code: dict[CodeType, None] = field(default_factory=dict[CodeType, None])
    calls: Counter[str] = field(default_factory=Counter[str])
    hops: int = 0

    def on_event(self, frame: FrameType, event: str, _arg: Any) -> None:
        code = frame.f_code
        if event != "call" or _PACKAGE not in code.co_filename or _is_nested(code):
            return
        self.code[code] = None
        self.calls[_name(code)] += 1

    def figures(self) -> dict[str, int]:
        """Return the counts."""
        files = [code.co_filename for code in self.code]
        return {
            "functions": len(files),
            "files": len(set(files)),
            "changes of file": sum(a != b for a, b in pairwise(files)),
            "thread hops": self.hops,
        }


def _is_nested(code: CodeType) -> bool:
    return code.co_name in {"<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>", "<module>"}


def _name(code: CodeType) -> str:
    return f"{code.co_filename.rpartition(_PACKAGE)[2]}:{code.co_qualname}"


def conversation(turns: int) -> list[dict[str, Any]]:
    """Return turns of four messages: a request, a call, its result and a closing statement."""
    messages: list[dict[str, Any]] = []
    for turn in range(turns):
        name, output = f"t{turn}", "line of output\n" * 200
        call = {"type": "tool_use", "id": name, "name": "Bash", "input": {"command": f"run {turn}"}}
        result = {"type": "tool_result", "tool_use_id": name, "content": output}
        messages += [
            {"role": "user", "content": f"do step {turn} " + "word " * 200},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": f"done {turn}" * 50},
        ]
    return messages


def pi_session(tree: Path) -> list[dict[str, Any]]:
    """Return the messages of the example session."""
    from context_compaction.formats.session_files.read import read_conversation

    path = tree / "examples" / "pi-session.jsonl"
    return list(read_conversation(path.read_bytes(), name=path.name).payload)


async def trace_call(payload: list[dict[str, Any]], format: str, target_tokens: int) -> Trace:
    """Trace a call with a new archive, after a warm-up call with another one."""
    from context_compaction import CompactRequest, compact, open_archive

    request = CompactRequest(format=format, target_tokens=target_tokens)
    with TemporaryDirectory() as folder:
        async with open_archive(Path(folder)) as archive:
            await compact(payload, request, archive=archive)
    trace, run_sync = Trace(), to_thread.run_sync

    async def traced_run_sync(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        def profiled() -> Any:
            sys.setprofile(trace.on_event)
            try:
                return work(*arguments)
            finally:
                sys.setprofile(None)

        trace.hops += 1
        return await run_sync(profiled, **options)

    with TemporaryDirectory() as folder:
        async with open_archive(Path(folder)) as archive:
            to_thread.run_sync = traced_run_sync
            sys.setprofile(trace.on_event)
            try:
                await compact(payload, request, archive=archive)
            finally:
                sys.setprofile(None)
                to_thread.run_sync = run_sync
    return trace


def main() -> None:
    """Print the counts of the three calls."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--names", action="store_true", help="list the functions in order")
    parser.add_argument("--files", action="store_true", help="list the files")
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parent.parent)
    options = parser.parse_args()
    sys.path.insert(0, str(options.tree / "compaction"))
    calls = {
        "short list": (conversation(3), "anthropic", 100_000),
        "eighty messages": (conversation(20), "anthropic", 5_000),
        "pi session": (pi_session(options.tree), "pi", 10_000),
    }
    for title, (payload, format, target_tokens) in calls.items():
        trace = anyio.run(trace_call, payload, format, target_tokens)
        figures = ", ".join(f"{value} {name}" for name, value in trace.figures().items())
        print(f"{title} ({len(payload)} messages, target {target_tokens}): {figures}")
        for code in trace.code if options.names else ():
            print(f"{trace.calls[_name(code)]:>8} x {_name(code)}")
        files = Counter(_name(code).partition(":")[0] for code in trace.code)
        for file, count in sorted(files.items()) if options.files else ():
            print(f"{count:>8} in {file}")


if __name__ == "__main__":
    main()

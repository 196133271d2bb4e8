"""A process that appends messages to one session and prints a line when each is durable.

    archive_writer.py ROOT INDEX SESSION NAME COUNT

Message number i of writer NAME is `word-NAME-i`. Each call passes a list that is longer by one, as
a host does. Without arguments it reads lines of arguments from its input and forks a writer for
each, which is faster than starting Python again, as on Windows. A writer first prints its process
ID, and last `end`.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
from context_compaction import formats
from context_compaction.archive.local.archive import open_archive


async def write(arguments: Sequence[str]) -> None:
    root, index_root, session_id, name, count = arguments
    async with open_archive(Path(root), index_root=Path(index_root)) as archive:
        raws: list[dict[str, str]] = []
        for number in range(int(count)):
            filler = f" {number}" * (number * 37 % 400)
            raws.append({"role": "user", "content": f"word{name}x{number}{filler}"})
            messages = formats.parse(raws, format="anthropic")
            await archive.append(session_id, messages, format="anthropic")
            print_line(number)


def print_line(value: object) -> None:
    sys.stdout.write(f"{value}\n")
    sys.stdout.flush()


def start_writer(arguments: Sequence[str]) -> None:
    if not hasattr(os, "fork"):  # Windows
        process = subprocess.Popen([sys.executable, __file__, *arguments])
        print_line(process.pid)
        process.wait()
        print_line("end")
        return
    process_id = os.fork()
    if process_id == 0:
        print_line(os.getpid())
        anyio.run(write, arguments)
        os._exit(0)
    os.waitpid(process_id, 0)
    print_line("end")


if __name__ == "__main__":
    if sys.argv[1:]:
        anyio.run(write, sys.argv[1:])
    for line in sys.stdin if not sys.argv[1:] else ():
        start_writer(line.split())

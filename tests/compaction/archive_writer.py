"""A process that appends messages to one session and says after each that it is durable.

    archive_writer.py ROOT INDEX SESSION NAME COUNT

Message number i of writer NAME is `word-NAME-i`. The list grows by one a call, as a host's does.
"""

import sys
from pathlib import Path

import anyio
from context_compaction import wire
from context_compaction.archive.local import open_archive


async def main(arguments: list[str]) -> None:
    root, index_root, session_id, name, count = arguments
    async with open_archive(Path(root), index_root=Path(index_root)) as archive:
        raws: list[dict[str, str]] = []
        for number in range(int(count)):
            filler = f" {number}" * (number * 37 % 400)
            raws.append({"role": "user", "content": f"word{name}x{number}{filler}"})
            messages = wire.parse(raws, format="anthropic")
            await archive.append(session_id, messages, format="anthropic")
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1:])

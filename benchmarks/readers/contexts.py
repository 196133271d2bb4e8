"""What a reader is given: one session, cut at one place, as one condition would hand it on.

    python benchmarks/readers/contexts.py FILE CUT CONDITION --target N [--words FILE] [--archive D]

FILE is any session that the product reads; CUT how many of its lines have happened (0: all). The
text goes to standard output, its size in tokens of o200k_base to standard error.

- `all`: the whole transcript, from which questions and answers are written.
- `newest`: the newest text that comes to N tokens.
- `ours`: what `compact()` leaves at N tokens, written by no model.
- `prompt`: what `compact()` asks a host's model for.
- `words`: `compact()` with the text of `--words` as the host's summary.
- `nine`: the text of `--words`, what a model gave for the whole transcript and `NINE_SECTIONS`
  after it, and then the newest text up to N tokens.

N is what is left beside the session's system messages, which a host keeps under every condition.
With `--archive` the originals stay in that folder, for readers who may search.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio
from context_compaction import CompactRequest, CompactResult, compact, formats, open_archive
from context_compaction.formats.session_files.read import decompress, read_conversation
from context_compaction.messages.model import (
    Block,
    JsonObject,
    Messages,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from context_compaction.tokens.counter import counter_for

MODEL = "gpt-4o"
SESSION = "reader"
CONDITIONS = ("all", "newest", "ours", "prompt", "words", "nine")

# Asked in the sections that Claude Code's own compaction asks for, in words of our own.
NINE_SECTIONS = """\
Write a summary of the conversation above so that another engineer can go on with the work without
having seen it. Be thorough about what the user asked for, what was done, code patterns, technical
decisions. Use these nine sections: 1. Primary request and intent. 2. Key technical concepts.
3. Files and code sections (with the important snippets and why each matters). 4. Errors and fixes.
5. Problem solving. 6. All user messages (not tool results). 7. Pending tasks. 8. Current work, with
file names and snippets. 9. Optional next step, with quotes of the most recent exchange.
"""


def shown(messages: Messages) -> str:
    """The messages as a person reads them, numbered."""
    return "\n\n".join(
        f"--- [{number}] {message.role}\n" + "\n".join(_block(block) for block in message.blocks)
        for number, message in enumerate(messages)
    )


def _block(block: Block | Part) -> str:
    match block:
        case Text():
            return block.text
        case Thinking():
            return f"(thinking) {block.text}"
        case ToolCall():
            return f"(calls {block.name}) {json.dumps(block.arguments, ensure_ascii=False)}"
        case ToolResult():
            return "(result) " + "\n".join(_block(part) for part in block.content)
        case _:
            return f"({type(block).__name__})"


def newest(text: str, target_tokens: int) -> str:
    """The end of `text` that counts at most `target_tokens`."""
    count = counter_for(MODEL)
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        if count.text(text[middle:]) <= target_tokens:
            high = middle
        else:
            low = middle + 1
    return text[low:]


async def compacted(
    payload: Sequence[JsonObject], request: CompactRequest, folder: Path
) -> CompactResult:
    """What `compact()` answers, with the originals kept in `folder`."""
    async with open_archive(folder) as archive:
        return await compact(payload, request, archive=archive)


async def context(args: argparse.Namespace, folder: Path) -> str:
    """The text of one condition."""
    lines = decompress(args.file.read_bytes(), args.file.name).splitlines(keepends=True)
    happened = b"".join(lines[: args.cut or None])
    conversation = read_conversation(happened, name=args.file.name)
    payload = conversation.payload
    parsed = formats.parse(payload, format=conversation.format)
    if args.condition == "all":
        return shown(parsed)
    count = counter_for(MODEL)
    system = tuple(message for message in parsed if message.role == "system")
    told = tuple(message for message in parsed if message.role != "system")
    if args.condition == "newest":
        return shown(system) + newest(shown(told), args.target)
    if args.condition == "nine":
        words = args.words.read_text(encoding="utf-8")
        room_tokens = args.target - count.text(words)
        return "\n\n".join([shown(system), words, newest(shown(told), room_tokens)])
    request = CompactRequest(
        format=conversation.format,
        session_id=SESSION,
        model=MODEL,
        target_tokens=args.target + count.messages(system),
        summarizer="extractive" if args.condition == "ours" else "host",
    )
    result = await compacted(payload, request, folder)
    if args.condition in {"prompt", "words"}:
        asked = result.summary_prompt
        if asked is None:
            raise SystemExit(f"No summary is wanted: {result.status}.")
        if args.condition == "prompt":
            return f"{asked.system}\n\n{asked.user}"
        words = args.words.read_text(encoding="utf-8")
        request = replace(request, summary=words, continuation=asked.continuation)
        result = await compacted(payload, request, folder)
    messages = formats.parse(result.messages, format=conversation.format)
    return shown(messages)


def main() -> None:
    """Print what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("cut", type=int)
    parser.add_argument("condition", choices=CONDITIONS)
    parser.add_argument("--target", type=int, default=16_000)
    parser.add_argument("--words", type=Path)
    parser.add_argument("--archive", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        text = anyio.run(context, args, args.archive or Path(temporary))
    sys.stdout.write(text + "\n")
    sys.stderr.write(f"{counter_for(MODEL).text(text):,} tokens\n")


if __name__ == "__main__":
    main()

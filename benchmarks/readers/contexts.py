"""Print the context that a reader gets: one session, cut at one line, compacted in one way.

Run: python benchmarks/readers/contexts.py FILE CUT CONDITION --target N [--summary FILE]
    [--archive FOLDER]

FILE is any session that the product reads. CUT is the number of its lines that have happened; 0
means all. The text goes to standard output, its size in tokens (o200k_base) to standard error.
CONDITION is one of:

- `all`: the whole transcript, from which questions and answers are written.
- `newest`: the newest text that fits N tokens.
- `control`: the control of answer_key.py.
- `ours`: the result of `compact()` at N tokens without a model.
- `prompt`: the prompt that `compact()` gives to a host's model.
- `summary`: the result of `compact()` with the text of `--summary` as the host's summary.
- `nine`: the text of `--summary`, which a model wrote for the whole transcript followed by
  `NINE_SECTIONS`, and then the newest text up to N tokens.

The session's system messages are added to N, because a host keeps them in every condition. With
`--archive` the originals stay in that folder, for readers who may search.
"""

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from context_compaction import CompactRequest, compact, formats, open_archive
from context_compaction.formats.session_files.read import decompress, read_conversation

from benchmarks.answer_key import COUNT, as_text, control, newest

CONDITIONS = ("all", "newest", "control", "ours", "prompt", "summary", "nine")

# The sections that Claude Code's own compaction asks for, in words of our own.
NINE_SECTIONS = """\
Write a summary of the conversation above so that another engineer can continue the work without
having seen it. Be thorough about what the user asked for, what was done, code patterns, technical
decisions. Use these nine sections: 1. Primary request and intent. 2. Key technical concepts.
3. Files and code sections (with the important snippets and why each matters). 4. Errors and fixes.
5. Problem solving. 6. All user messages (not tool results). 7. Pending tasks. 8. Current work, with
file names and snippets. 9. Optional next step, with quotes of the most recent exchange.
"""


async def context(options: argparse.Namespace, folder: Path) -> str:
    """Return the text of the chosen condition."""
    lines = decompress(options.file.read_bytes(), options.file.name).splitlines(keepends=True)
    data = b"".join(lines[: options.cut or None])
    conversation = read_conversation(data, name=options.file.name)
    messages = formats.parse(conversation.payload, format=conversation.format)
    system = tuple(message for message in messages if message.role == "system")
    rest = tuple(message for message in messages if message.role != "system")
    match options.condition:
        case "all":
            return as_text(messages)
        case "newest":
            return as_text(system) + newest(rest, options.target)
        case "control":
            return as_text(system) + control(rest, options.target)
        case "nine":
            summary = options.summary.read_text(encoding="utf-8")
            newest_tokens = options.target - COUNT.text(summary)
            return "\n\n".join([as_text(system), summary, newest(rest, newest_tokens)])
        case _:
            pass
    request = CompactRequest(
        format=conversation.format,
        session_id="reader",
        model="gpt-4o",
        target_tokens=options.target + COUNT.messages(system),
        summarizer="extractive" if options.condition == "ours" else "host",
    )
    async with open_archive(folder) as archive:
        result = await compact(conversation.payload, request, archive=archive)
        if options.condition in {"prompt", "summary"}:
            prompt = result.summary_prompt
            if prompt is None:
                raise SystemExit(f"No summary is needed: {result.status}.")
            if options.condition == "prompt":
                return f"{prompt.system}\n\n{prompt.user}"
            summary = options.summary.read_text(encoding="utf-8")
            request = replace(request, summary=summary, continuation=prompt.continuation)
            result = await compact(conversation.payload, request, archive=archive)
    return as_text(formats.parse(result.messages, format=conversation.format))


def main() -> None:
    """Print the context that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("cut", type=int)
    parser.add_argument("condition", choices=CONDITIONS)
    parser.add_argument("--target", type=int, default=16_000)
    parser.add_argument("--summary", type=Path)
    parser.add_argument("--archive", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        text = anyio.run(context, options, options.archive or Path(temporary))
    sys.stdout.write(text + "\n")
    sys.stderr.write(f"{COUNT.text(text):,} tokens\n")


if __name__ == "__main__":
    main()

"""How many of the lines that are pinned unasked are standing rules, as two readers judge them.

    python benchmarks/readers/precision.py draw [FOLDER ...] > drawn.json
    python benchmarks/readers/precision.py score

`draw` takes every line that would be pinned in the real transcripts of the tests, in the sessions
of the readers and in each FOLDER (Markdown as SpecStory writes it, and sessions as a host records
them), each text once, and 100 of them by a fixed seed; each with its message and the two before and
after, cut. `score` prints what the readers said.
"""

import argparse
import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from context_compaction import CompactionError, formats
from context_compaction.formats.session_files.read import decompress, read_conversation
from context_compaction.messages.model import Messages, text_of
from context_compaction.summarizers.instructions.find import find_instructions

from tests.support.corpus import all_transcripts

HERE = Path(__file__).parent
JUDGED = HERE / "precision.json"
SEED = 20261122
DRAWN = 100
AROUND_CHARS = 500
_SPEAKER = re.compile(r"^_\*\*(User|Human|Agent|Assistant)(?: \([^)\n]*\))?\*\*_\s*$", re.MULTILINE)


def sources(folders: list[Path]) -> Iterator[tuple[str, Messages]]:
    """Every session with its name."""
    for transcript in all_transcripts():
        yield transcript.name, formats.parse(transcript.payload, format=transcript.format)
    for file in sorted((HERE / "sessions").iterdir()):
        data = decompress(file.read_bytes(), file.name)
        yield f"readers/{file.name}", read_conversation(data, name=file.name).messages
    for folder in folders:
        for file in sorted(folder.rglob("*.md")):
            payload = spoken_in(file.read_text("utf-8", errors="replace"))
            yield f"{folder.name}/{file.stem}", formats.parse(payload, format="openai-chat")
        for file in sorted(folder.rglob("*.jsonl*")):
            try:
                data = decompress(file.read_bytes(), file.name)
                found = read_conversation(data, name=file.name).messages
            except CompactionError as error:
                print(f"left out: {error}", file=sys.stderr)
                continue
            yield f"{folder.name}/{file.name.partition('.')[0]}", found


def spoken_in(markdown: str) -> list[dict[str, Any]]:
    """The messages of a session that SpecStory wrote down."""
    heads = list(_SPEAKER.finditer(markdown))
    messages: list[dict[str, Any]] = []
    for at, head in enumerate(heads):
        stop = heads[at + 1].start() if at + 1 < len(heads) else len(markdown)
        text = re.sub(r"(\n+---\s*)+\Z", "", markdown[head.end() : stop]).strip()
        role = "user" if head[1] in ("User", "Human") else "assistant"
        if text:
            messages.append({"role": role, "content": text})
    return messages


def drawn(folders: list[Path]) -> list[dict[str, Any]]:
    """The lines with what stands around them."""
    found: dict[str, dict[str, Any]] = {}
    for source, messages in sources(folders):
        for rule in find_instructions(messages).rules:
            if rule.text in found:
                continue
            around = messages[max(0, rule.turn - 2) : rule.turn + 3]
            texts = [f"{m.role}: {_cut(text_of(m.blocks), rule.text)}" for m in around]
            found[rule.text] = {"source": source, "line": rule.text, "around": texts}
    chosen = random.Random(SEED).sample(list(found.values()), min(DRAWN, len(found)))
    return [{"id": f"r{number:03}", **item} for number, item in enumerate(chosen)]


def _cut(text: str, line: str) -> str:
    """What stands around the beginning of `line`; else the beginning of `text`."""
    text = " ".join(text.split())
    at = max(0, text.find(line))
    start = max(0, at - AROUND_CHARS)
    stop = at + len(line) + AROUND_CHARS if line in text else AROUND_CHARS
    return f"{'… ' if start else ''}{text[start:stop]}{' …' if stop < len(text) else ''}"


def score() -> str:
    """The table, as Markdown: of the lines that are pinned, the share that are rules."""
    judged: list[dict[str, Any]] = json.loads(JUDGED.read_text("utf-8"))
    twice = [one for one in judged if one["second"] is not None]
    cells = [
        _share([one["first"] for one in judged]),
        _share([one["second"] for one in twice]),
        _share([one["first"] == one["second"] for one in twice]),
    ]
    return (
        "| lines | first reader | second reader | they agree |\n"
        f"|---|---|---|---|\n| {len(judged)} | {' | '.join(cells)} |"
    )


def _share(verdicts: list[bool]) -> str:
    return f"{sum(verdicts) / len(verdicts):.2f}" if verdicts else "not judged"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("draw", "score"))
    parser.add_argument("folders", nargs="*", type=Path)
    args = parser.parse_args()
    if args.what == "score":
        print(score())
    else:
        json.dump(drawn(args.folders), sys.stdout, ensure_ascii=False, indent=1)


if __name__ == "__main__":
    main()

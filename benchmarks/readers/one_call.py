"""Whether one search answers: every reader's question asked once, as it stands, of its session.

Run: python benchmarks/readers/one_call.py [SESSION ...] [--show]

The reply is that of `search_transcript` by default: ten hits, at most 2,400 tokens. It holds an
answer as far as the words of the answer stand in its passages: those that the question does not
say and the transcript says somewhere, weighted by how rare they are there. From `FOUND_SHARE` on it
counts as found. Judged by hand on thirty replies of sessions held back, 24 counted so, and held the
answer (21) or half of it (3); of the six others three held it, in other words, and one half of it.
"""

import argparse
import gzip
import json
import math
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import anyio
from context_compaction import formats
from context_compaction.archive import Archive, Query
from context_compaction.archive.documents import message_text
from context_compaction.archive.local.archive import open_archive
from context_compaction.archive.tokenizer import words_of
from context_compaction.formats.session_files.read import read_conversation
from context_compaction.messages.model import compact_json
from context_compaction.tokens.counter import counter_for
from mcp_server_compaction.protocol.schemas import SearchReply
from mcp_server_compaction.protocol.tools.search_transcript import search_briefly

FOLDER = Path(__file__).parent
EXAMPLES = FOLDER.parent.parent / "examples"
FOUND_SHARE = 0.6
HELD_BACK = ("gitindex", "humanize", "sqlparse")  # not looked at while search was changed
COUNT = counter_for("gpt-4o")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, what came back, and how much of the answer's own words stand in it."""

    name: str
    row: dict[str, str]
    reply: SearchReply
    share: float

    @property
    def text(self) -> str:
        """The reply as a model sees it."""
        return compact_json(self.reply.model_dump(mode="json", exclude_none=True))


def happened(session: str, cut_lines: int) -> bytes:
    """The lines of a session's file up to the cut; 0: all."""
    packed = FOLDER / "sessions" / f"{session}.jsonl.gz"
    if packed.exists():
        data = gzip.decompress(packed.read_bytes())
    else:
        data = (EXAMPLES / f"{session}-session.jsonl").read_bytes()
    return b"".join(data.splitlines(keepends=True)[: cut_lines or None])


async def ask_all(name: str) -> list[Asked]:
    """The questions of one session at one cut, in an archive of their own."""
    content = json.loads((FOLDER / "questions" / f"{name}.json").read_text(encoding="utf-8"))
    session, _, _ = name.partition(".")
    conversation = read_conversation(happened(session, content["cut_lines"]), name="a.jsonl")
    messages = formats.parse(conversation.payload, format=conversation.format)
    texts = [message_text(raw, conversation.format) for raw in conversation.payload]
    holders = Counter(word for text in texts for word in words_of(text))
    weights = {word: math.log(1 + len(texts) / count) for word, count in holders.items()}
    with TemporaryDirectory() as folder:
        root = Path(folder)
        async with open_archive(root / "archive", index_root=root / "index") as archive:
            await archive.append(session, messages, format=conversation.format)
            return [
                await ask(archive, session, f"{name}.{row['id']}", row, weights)
                for row in content["questions"]
            ]


async def ask(
    archive: Archive, session: str, name: str, row: dict[str, str], weights: dict[str, float]
) -> Asked:
    """One question, in one call."""
    reply = await search_briefly(archive, Query(row["question"], session_id=session))
    shown = [hit.snippet for hit in reply.hits] + [h.next.snippet for h in reply.hits if h.next]
    wanted = words_of(row["answer"]) - words_of(row["question"])
    whole = sum(weights.get(word, 0.0) for word in wanted)
    held = sum(weights.get(word, 0.0) for word in wanted & words_of("\n".join(shown)))
    return Asked(name, row, reply, held / whole if whole else 1.0)


def table_row(title: str, asked: list[Asked]) -> str:
    """A line of the table: questions, found, share of the answers' words, size of a reply."""
    found = fmean(one.share >= FOUND_SHARE for one in asked)
    share = fmean(one.share for one in asked)
    chars = fmean(len(one.text) for one in asked)
    tokens = max(COUNT.text(one.text) for one in asked)
    return f"| {title} | {len(asked)} | {found:.3f} | {share:.3f} | {chars:,.0f} | {tokens:,} |"


def main() -> None:
    """Print the table, and with --show every reply."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sessions", nargs="*")
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    names = sorted(path.stem for path in (FOLDER / "questions").glob("*.json"))
    chosen = [name for name in names if not args.sessions or name.split(".")[0] in args.sessions]
    asked = [one for name in chosen for one in anyio.run(ask_all, name)]
    groups: dict[str, list[Asked]] = {}
    for one in asked:
        is_held_back = one.name.startswith(HELD_BACK)
        for title in (one.row["kind"], "held back" if is_held_back else "the others"):
            groups.setdefault(title, []).append(one)
    sys.stdout.write("| | questions | found | of the answers | characters | tokens, at most |\n")
    sys.stdout.write("|---|--:|--:|--:|--:|--:|\n")
    for title, members in sorted(groups.items()):
        sys.stdout.write(f"{table_row(title, members)}\n")
    for one in asked if args.show else ():
        row = one.row
        sys.stdout.write(
            f"\n## {one.name} ({row['kind']}), {one.share:.2f}\n\n{row['question']}\n"
            f"-> {row['answer']}\n\n"
        )
        for hit in one.reply.hits:
            sys.stdout.write(f"- {hit.pointer} {hit.role} {hit.note or ''}: {hit.snippet!r}\n")


if __name__ == "__main__":
    main()

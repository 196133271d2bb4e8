"""Measure whether one search answers a question: each reader's question is asked one time.

Run: python benchmarks/readers/one_call.py [SESSION ...] [--show]

Each question is a search in its session, word for word. The reply is the default reply of
`search_transcript`: ten hits, at most 2,400 tokens by the estimate for an unknown model. Its share
is the part of the answer's words in its passages, without the words of the question, weighted by
how rare they are in the transcript. From `FOUND_SHARE` the answer counts as found. Of thirty
replies that were judged by hand, 24 counted as found; 21 of them had the answer and 3 had half of
it.
"""

import argparse
import gzip
import json
import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import anyio
from context_compaction import formats
from context_compaction.archive.archive import Archive
from context_compaction.archive.documents import read_stored
from context_compaction.archive.local.archive import open_archive
from context_compaction.archive.tokenizer import words_of
from context_compaction.archive.values import Query
from context_compaction.formats.session_files.read import read_conversation
from context_compaction.messages.model import compact_json
from context_compaction.tokens.counter import counter_for
from mcp_server_compaction.protocol.schemas import SearchReply
from mcp_server_compaction.protocol.tools.archived import search_briefly

FOLDER = Path(__file__).parent
EXAMPLES = FOLDER.parent.parent / "examples"
FOUND_SHARE = 0.6
UNSEEN = ("gitindex", "humanize", "sqlparse")  # not read while search was changed
COUNT = counter_for("gpt-4o")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A question and its reply.

    Attributes:
        name: Name of the question file and ID of the question.
        row: Question, answer and kind.
        reply: The reply of the search.
        share: Weighted share of the answer's words in the reply.
    """

    name: str
    row: dict[str, str]
    reply: SearchReply
    share: float

    @property
    def text(self) -> str:
        """The reply as a model sees it."""
        return compact_json(self.reply.model_dump(mode="json", exclude_none=True))


def session_data(session: str, cut_lines: int) -> bytes:
    """Return the first `cut_lines` lines of a session file; 0 returns all."""
    packed = FOLDER / "sessions" / f"{session}.jsonl.gz"
    if packed.exists():
        data = gzip.decompress(packed.read_bytes())
    else:
        data = (EXAMPLES / f"{session}-session.jsonl").read_bytes()
    return b"".join(data.splitlines(keepends=True)[: cut_lines or None])


async def ask_all(name: str) -> list[Outcome]:
    """Ask the questions of one file in a new archive that has only its session."""
    content = json.loads((FOLDER / "questions" / f"{name}.json").read_text(encoding="utf-8"))
    session, _, _ = name.partition(".")
    data = session_data(session, content["cut_lines"])
    conversation = read_conversation(data, name="a.jsonl")
    messages = formats.parse(conversation.payload, format=conversation.format)
    texts = [read_stored(raw, conversation.format).text for raw in conversation.payload]
    frequency = Counter(word for text in texts for word in words_of(text))
    weights = {word: math.log(1 + len(texts) / count) for word, count in frequency.items()}
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
) -> Outcome:
    """Search for one question and weigh the answer's words in the reply."""
    reply = await search_briefly(archive, Query(row["question"], session_id=session))
    passages = [hit.snippet for hit in reply.hits]
    passages += [hit.next.snippet for hit in reply.hits if hit.next]
    answer_words = words_of(row["answer"]) - words_of(row["question"])
    found_words = answer_words & words_of("\n".join(passages))
    total = sum(weights.get(word, 0.0) for word in answer_words)
    found = sum(weights.get(word, 0.0) for word in found_words)
    return Outcome(name, row, reply, found / total if total else 1.0)


def table_row(title: str, outcomes: list[Outcome]) -> str:
    """Format questions, share found, share of the answers' words and size of the replies."""
    found = fmean(outcome.share >= FOUND_SHARE for outcome in outcomes)
    share = fmean(outcome.share for outcome in outcomes)
    chars = fmean(len(outcome.text) for outcome in outcomes)
    tokens = max(COUNT.text(outcome.text) for outcome in outcomes)
    return f"| {title} | {len(outcomes)} | {found:.3f} | {share:.3f} | {chars:,.0f} | {tokens:,} |"


def print_reply(outcome: Outcome) -> None:
    """Print a question, its answer and the hits."""
    row = outcome.row
    print(f"\n## {outcome.name} ({row['kind']}), {outcome.share:.2f}\n")
    print(f"{row['question']}\n-> {row['answer']}\n")
    for hit in outcome.reply.hits:
        print(f"- {hit.pointer} {hit.role} {hit.note or ''}: {hit.snippet!r}")


def main() -> None:
    """Print the table, and with --show every reply."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sessions", nargs="*")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    names = sorted(path.stem for path in (FOLDER / "questions").glob("*.json"))
    if options.sessions:
        names = [name for name in names if name.split(".")[0] in options.sessions]
    outcomes = [outcome for name in names for outcome in anyio.run(ask_all, name)]
    groups: defaultdict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.row["kind"]].append(outcome)
        is_unseen = outcome.name.startswith(UNSEEN)
        groups["held back" if is_unseen else "the others"].append(outcome)
    print("| | questions | found | of the answers' words | characters | tokens, at most |")
    print("|---|--:|--:|--:|--:|--:|")
    for title, members in sorted(groups.items()):
        print(table_row(title, members))
    for outcome in outcomes if options.show else ():
        print_reply(outcome)


if __name__ == "__main__":
    main()

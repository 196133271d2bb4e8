"""Measure how well search finds the messages that answer a question, next to FTS5 and rank_bm25.

Run: python benchmarks/retrieval.py [--locomo FOLDER_OR_FILE] [--part dev] [--misses]

All three search these texts in one run. The questions are in benchmarks/data (see NOTICE.md
there). Identifiers are taken from the transcripts: each is searched for whole, by all of its parts,
and by every part that only a few messages contain.
"""

import argparse
import json
import re
import sqlite3
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction import formats
from context_compaction.archive.archive import Archive
from context_compaction.archive.documents import read_stored
from context_compaction.archive.local.archive import open_archive
from context_compaction.archive.values import Query
from rank_bm25 import BM25Okapi  # pyright: ignore[reportMissingTypeStubs]

from tests.support.corpus import all_transcripts

QUESTIONS = Path(__file__).parent / "data" / "retrieval.jsonl"
DEPTH = 10
# Identifiers in more messages are not asked for, because no ranking could tell these apart.
MAX_ANSWERS = 3
MAX_PARTS = 5
# Other runs of a task, whose texts would answer the questions as well.
OMITTED = re.compile(r"trial-[123]|airline-few-shot|test-repo|marshmallow-1867-(?!default$)")
PARTS = ("dev", "held-out", "held-out-2", "held-out-3")
_SMALL_WORDS = (
    "a an and are as at be but by did do does for from had has have he her his how i if in into is "
    "it its me my of on or our she so than that the their them then there these they this to too "
    "was we were what when where which who why will with would you your"
)
STOP_WORDS = frozenset(_SMALL_WORDS.split())

Doc = tuple[str, int]
Hit = tuple[Doc, ...]  # a message, and the message after it if the hit shows it
Search = Callable[[str, str | None], list[Doc]]


@dataclass(frozen=True)
class Question:
    """A question.

    Attributes:
        text: The question.
        answers: Messages of which each answers it.
        session: Session to search; None searches all.
    """

    text: str
    answers: frozenset[Doc]
    session: str | None = None


def session_id(name: str) -> str:
    """Return the session ID of a transcript."""
    return name.replace("/", ":")


def texts_of_transcripts() -> dict[Doc, str]:
    """Return the texts of all messages."""
    texts: dict[Doc, str] = {}
    for transcript in all_transcripts():
        if OMITTED.search(transcript.name):
            continue
        for seq, message in enumerate(formats.parse(transcript.payload, format=transcript.format)):
            assert isinstance(message.source, dict)
            text = read_stored(message.source, transcript.format).text
            texts[session_id(transcript.name), seq] = text
    return texts


async def fill_with_transcripts(archive: Archive) -> None:
    """Append all transcripts to `archive`."""
    for transcript in all_transcripts():
        if not OMITTED.search(transcript.name):
            messages = formats.parse(transcript.payload, format=transcript.format)
            dated = [
                message
                if message.timestamp_seconds is not None
                else replace(message, timestamp_seconds=1_750_000_000.0 + seq)
                for seq, message in enumerate(messages)
            ]
            await archive.append(session_id(transcript.name), dated, format=transcript.format)


def questions(part: str) -> list[Question]:
    """Return the questions of one set."""
    rows = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    return [
        Question(
            row["question"], frozenset((session_id(row["session"]), seq) for seq in row["answers"])
        )
        for row in rows
        if row["part"] == part
    ]


def fts5(texts: dict[Doc, str], *, drops_stop_words: bool) -> Search:
    """Return a search in an FTS5 table with the Porter stemmer."""
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE t USING fts5 (session UNINDEXED, seq UNINDEXED, text, "
        "tokenize='porter unicode61')"
    )
    connection.executemany(
        "INSERT INTO t VALUES (?, ?, ?)",
        [(session, seq, safe(text)) for (session, seq), text in texts.items()],
    )

    def search(query: str, session: str | None) -> list[Doc]:
        words = re.findall(r"\w+", query.lower())
        if drops_stop_words:
            words = [word for word in words if word not in STOP_WORDS] or words
        match = " OR ".join(f'"{word}"' for word in words)
        rows = connection.execute(
            "SELECT session, seq FROM t WHERE t MATCH ? AND (? IS NULL OR session = ?)"
            " ORDER BY bm25(t) LIMIT ?",
            (match, session, session, DEPTH),
        )
        return [(str(name), int(seq)) for name, seq in rows]

    return search


def rank_bm25(texts: dict[Doc, str]) -> Search:
    """Return a search with the package rank_bm25."""
    by_session: dict[str | None, list[Doc]] = defaultdict(list)
    for doc in texts:
        by_session[None].append(doc)
        by_session[doc[0]].append(doc)
    engines: dict[str | None, Any] = {}

    def search(query: str, session: str | None) -> list[Doc]:
        docs = by_session[session]
        if session not in engines:
            engines[session] = BM25Okapi([re.findall(r"\w+", texts[doc].lower()) for doc in docs])
        words = re.findall(r"\w+", query.lower())
        scores: Any = engines[session].get_scores(words)
        best = [int(index) for index in scores.argsort()[::-1][:DEPTH]]
        return [docs[index] for index in best if scores[index] > 0]

    return search


def safe(text: str) -> str:
    """Replace lone surrogates, which SQLite refuses."""
    return text.encode("utf-8", "replace").decode()


async def search_archive(archive: Archive, asked: Sequence[Question]) -> list[list[Hit]]:
    """Return the hits of each question, with the next message if a hit ends with a question."""
    answers: list[list[Hit]] = []
    for question in asked:
        page = await archive.search(Query(question.text, session_id=question.session, limit=DEPTH))
        pairs = [(hit, hit.next) if hit.next else (hit,) for hit in page.hits]
        answers.append([tuple((hit.session_id, hit.seq) for hit in pair) for pair in pairs])
    return answers


def without_next(answers: Sequence[Sequence[Hit]]) -> list[list[Hit]]:
    """Return the hits without the messages after them."""
    return [[hit[:1] for hit in hits] for hits in answers]


def figures(asked: Sequence[Question], answers: Sequence[Sequence[Hit]]) -> dict[str, float]:
    """Return recall as the share of questions with an answering message among the first hits."""
    ranks = [
        next((rank for rank, docs in enumerate(hits, 1) if question.answers & {*docs}), None)
        for question, hits in zip(asked, answers, strict=True)
    ]
    count = max(len(ranks), 1)
    return {
        "R@5": sum(rank is not None and rank <= 5 for rank in ranks) / count,
        "R@10": sum(rank is not None for rank in ranks) / count,
        "MRR": sum(1 / rank for rank in ranks if rank is not None) / count,
    }


def evidence_figures(
    asked: Sequence[Question], answers: Sequence[Sequence[Hit]]
) -> dict[str, float]:
    """Return recall as LoCoMo defines it: the share of the evidence among the first hits."""
    count = max(len(asked), 1)

    def recall(depth: int) -> float:
        shares = [
            len(question.answers & {doc for docs in hits[:depth] for doc in docs})
            / len(question.answers)
            for question, hits in zip(asked, answers, strict=True)
        ]
        return sum(shares) / count

    return {"R@5": recall(5), "R@10": recall(10), "MRR": figures(asked, answers)["MRR"]}


async def compare(
    title: str,
    archive: Archive,
    texts: dict[Doc, str],
    asked: Sequence[Question],
    judge: Callable[[Sequence[Question], Sequence[Sequence[Hit]]], dict[str, float]] = figures,
) -> list[list[Hit]]:
    """Print a table for one set of questions; return our hits."""
    await archive.search(Query("warm", limit=1))
    rows: list[tuple[str, list[list[Hit]], float]] = []
    start = time.process_time()
    own_hits = await search_archive(archive, asked)
    seconds = time.process_time() - start
    rows.append(("search_transcript", own_hits, seconds))
    rows.append(("search_transcript without next messages", without_next(own_hits), seconds))
    peers: list[tuple[str, Search]] = [
        ("FTS5 porter, any word", fts5(texts, drops_stop_words=False)),
        ("FTS5 porter, no stop words", fts5(texts, drops_stop_words=True)),
        ("rank_bm25 (BM25Okapi)", rank_bm25(texts)),
    ]
    for name, search in peers:
        search("warm", asked[0].session if asked else None)
        start = time.process_time()
        answers = [[(doc,) for doc in search(row.text, row.session)] for row in asked]
        rows.append((name, answers, time.process_time() - start))
    print(f"\n## {title}: {len(asked)} questions, {len(texts)} messages\n")
    print("| | R@5 | R@10 | MRR | CPU ms a query |")
    print("|---|---|---|---|---|")
    for name, answers, seconds in rows:
        row = judge(asked, answers)
        cost = seconds * 1000 / max(len(asked), 1)
        print(f"| {name} | {row['R@5']:.3f} | {row['R@10']:.3f} | {row['MRR']:.3f} | {cost:.1f} |")
    return own_hits


def identifiers(texts: dict[Doc, str]) -> dict[str, list[Question]]:
    """Return questions about identifiers, by kind of query.

    Every message that contains the parts of a name one after another answers it, whatever is
    between them. Parts are split here without the product's code.
    """
    joined_texts = {doc: re.sub(r"[\W_]+", "", text).lower() for doc, text in texts.items()}
    docs_by_part: dict[str, set[Doc]] = defaultdict(set)
    names: dict[str, str] = {}
    for doc, text in texts.items():
        for word in set(re.findall(r"[A-Za-z0-9_]+", text)):
            parts = split_identifier(word)
            for part in {*parts, word.lower()}:
                docs_by_part[part].add(doc)
            word_count = sum(len(part) > 2 and part.isalpha() for part in parts)
            if word_count > 1 and len(parts) <= MAX_PARTS:  # others are hexadecimal or no names
                names.setdefault("".join(parts), word)
    asked: dict[str, list[Question]] = {"whole": [], "all parts": [], "one rare part": []}
    for joined, name in sorted(names.items()):
        answers = frozenset(doc for doc, text in joined_texts.items() if joined in text)
        if len(answers) > MAX_ANSWERS:
            continue
        asked["whole"].append(Question(name, answers))
        asked["all parts"].append(Question(" ".join(split_identifier(name)), answers))
        asked["one rare part"] += [
            Question(part, frozenset(docs_by_part[part]))
            for part in split_identifier(name)
            if len(part) >= 4 and len(docs_by_part[part]) <= MAX_ANSWERS
        ]
    return asked


def split_identifier(word: str) -> list[str]:
    """Split at "_", before a capital and between letters and digits; return lower-case parts."""
    pieces = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", word)
    return [piece.lower() for piece in pieces]


def locomo(path: Path) -> Iterator[tuple[str, list[tuple[str, float]], list[tuple[str, set[int]]]]]:
    """Yield name, turns with times, and questions with evidence of each conversation."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    for file in files:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
        # The published file is a list of conversations; older files have one conversation each.
        for number, item in enumerate([content] if "qa" in content else content):
            talk = item.get("conversation", item)
            turns: list[tuple[str, float]] = []
            indices: dict[str, int] = {}
            for session in range(1, 100):
                if f"session_{session}" not in talk:
                    continue
                start = _seconds_of(talk[f"session_{session}_date_time"])
                for turn in talk[f"session_{session}"]:
                    indices[turn["dia_id"]] = len(turns)
                    caption = turn.get("blip_caption")
                    text = f"{turn['speaker']}: {turn.get('text', '')}"
                    turns.append((f"{text} [{caption}]" if caption else text, start + len(turns)))
            asked = [
                (row["question"], {indices[name] for name in row["evidence"] if name in indices})
                for row in item["qa"]
                if row.get("evidence")
            ]
            yield f"{file.stem}-{number}", turns, [row for row in asked if row[1]]


def _seconds_of(text: str) -> float:
    moment = datetime.strptime(text, "%I:%M %p on %d %B, %Y")  # noqa: DTZ007
    return moment.replace(tzinfo=UTC).timestamp()


async def measure_locomo(path: Path, folder: Path) -> None:
    """Print the table of LoCoMo."""
    texts: dict[Doc, str] = {}
    asked: list[Question] = []
    async with open_archive(folder / "locomo", index_root=folder / "index") as archive:
        for name, turns, rows in locomo(path):
            raws = [{"role": "user", "content": text} for text, _ in turns]
            messages = [
                replace(message, timestamp_seconds=seconds)
                for message, (_, seconds) in zip(
                    formats.parse(raws, format="anthropic"), turns, strict=True
                )
            ]
            await archive.append(name, messages, format="anthropic")
            texts |= {(name, seq): text for seq, (text, _) in enumerate(turns)}
            asked += [
                Question(question, frozenset((name, seq) for seq in seqs), name)
                for question, seqs in rows
            ]
        await compare("LoCoMo", archive, texts, asked, evidence_figures)


async def main(options: argparse.Namespace) -> None:
    """Print all tables."""
    texts = texts_of_transcripts()
    with TemporaryDirectory() as folder:
        root = Path(folder)
        async with open_archive(root / "archive", index_root=root / "index") as archive:
            await fill_with_transcripts(archive)
            for part in PARTS:
                if options.part in {None, part}:
                    asked = questions(part)
                    hits = await compare(f"Own questions, {part}", archive, texts, asked)
                    if options.misses:
                        print_misses(asked, hits)
            for kind, asked in identifiers(texts).items():
                hits = await compare(f"Identifiers, {kind}", archive, texts, asked)
                if options.misses:
                    print_misses(asked, hits)
        if options.locomo is not None:
            await measure_locomo(options.locomo, root)


def print_misses(asked: Sequence[Question], answers: Sequence[Sequence[Hit]]) -> None:
    """Print the questions with no answer among the first five hits."""
    for question, hits in zip(asked, answers, strict=True):
        if not question.answers & {doc for docs in hits[:5] for doc in docs}:
            print("missed:", question.text, sorted(question.answers), list(hits[:3]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--locomo", type=Path)
    parser.add_argument("--misses", action="store_true")
    anyio.run(main, parser.parse_args())

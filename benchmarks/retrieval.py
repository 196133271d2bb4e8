"""How well search finds the message that answers a question, beside plain FTS5 and rank_bm25.

Run: python benchmarks/retrieval.py [--locomo FOLDER_OR_FILE] [--part dev]

All three search the same texts in the same run. Questions stand in benchmarks/data (see NOTICE.md
there). Identifiers are taken from the transcripts themselves: each is asked for as it stands, by
all of its parts, and by every part that few messages hold.
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
from context_compaction.archive import Archive, Query
from context_compaction.archive.documents import message_text
from context_compaction.archive.local.archive import open_archive
from rank_bm25 import BM25Okapi  # pyright: ignore[reportMissingTypeStubs]

from tests.support.corpus import all_transcripts

QUESTIONS = Path(__file__).parent / "data" / "retrieval.jsonl"
DEPTH = 10
MAX_HOLDERS = 3  # messages that may hold an identifier or a part for its place to be a fair demand
MAX_PARTS = 5
# Several runs of one task say nearly the same; questions are about the first.
LEFT_OUT = re.compile(r"trial-[123]|airline-few-shot|test-repo|marshmallow-1867-(?!default$)")
PARTS = ("dev", "held-out", "held-out-2", "held-out-3")
_SMALL_WORDS = (
    "a an and are as at be but by did do does for from had has have he her his how i if in into is "
    "it its me my of on or our she so than that the their them then there these they this to too "
    "was we were what when where which who why will with would you your"
)
STOP_WORDS = frozenset(_SMALL_WORDS.split())

Doc = tuple[str, int]
Found = tuple[Doc, ...]  # what one place in a list of hits shows: a message, and what follows it
Search = Callable[[str, str | None], list[Doc]]


@dataclass(frozen=True)
class Question:
    """A question, the messages that answer it, and the session to search (None: all)."""

    text: str
    answers: frozenset[Doc]
    session: str | None = None


def session_id(name: str) -> str:
    return name.replace("/", ":")


def texts_of_transcripts() -> dict[Doc, str]:
    texts: dict[Doc, str] = {}
    for transcript in all_transcripts():
        if LEFT_OUT.search(transcript.name):
            continue
        for seq, message in enumerate(formats.parse(transcript.payload, format=transcript.format)):
            assert isinstance(message.source, dict)
            texts[session_id(transcript.name), seq] = message_text(
                message.source, transcript.format
            )
    return texts


async def fill_with_transcripts(archive: Archive) -> None:
    for transcript in all_transcripts():
        if not LEFT_OUT.search(transcript.name):
            messages = formats.parse(transcript.payload, format=transcript.format)
            dated = [
                message
                if message.timestamp_seconds is not None
                else replace(message, timestamp_seconds=1_750_000_000.0 + seq)
                for seq, message in enumerate(messages)
            ]
            await archive.append(session_id(transcript.name), dated, format=transcript.format)


def questions(part: str) -> list[Question]:
    rows = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    return [
        Question(
            row["question"], frozenset((session_id(row["session"]), seq) for seq in row["answers"])
        )
        for row in rows
        if row["part"] == part
    ]


# Peers


def fts5(texts: dict[Doc, str], *, drops_stop_words: bool) -> Search:
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
        best = [int(at) for at in scores.argsort()[::-1][:DEPTH]]
        return [docs[at] for at in best if scores[at] > 0]

    return search


def safe(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


# Ours


async def ours(archive: Archive, asked: Sequence[Question]) -> list[list[Found]]:
    """The hits, each with the message after it where the hit ends with a question."""
    answers: list[list[Found]] = []
    for question in asked:
        page = await archive.search(Query(question.text, session_id=question.session, limit=DEPTH))
        shown = [(hit, hit.next) if hit.next else (hit,) for hit in page.hits]
        answers.append([tuple((hit.session_id, hit.seq) for hit in hits) for hits in shown])
    return answers


def hits_alone(answers: Sequence[Sequence[Found]]) -> list[list[Found]]:
    return [[shown[:1] for shown in found] for found in answers]


# Figures


def figures(asked: Sequence[Question], answers: Sequence[Sequence[Found]]) -> dict[str, float]:
    """Recall here: whether one of the answering messages stands among the first."""
    ranks = [
        next((rank for rank, docs in enumerate(found, 1) if question.answers & {*docs}), None)
        for question, found in zip(asked, answers, strict=True)
    ]
    count = max(len(ranks), 1)
    return {
        "R@5": sum(rank is not None and rank <= 5 for rank in ranks) / count,
        "R@10": sum(rank is not None for rank in ranks) / count,
        "MRR": sum(1 / rank for rank in ranks if rank is not None) / count,
    }


def evidence_figures(
    asked: Sequence[Question], answers: Sequence[Sequence[Found]]
) -> dict[str, float]:
    """Recall as LoCoMo has it: the share of the evidence that stands among the first."""
    count = max(len(asked), 1)

    def recall(depth: int) -> float:
        shares = [
            len(question.answers & {doc for docs in found[:depth] for doc in docs})
            / len(question.answers)
            for question, found in zip(asked, answers, strict=True)
        ]
        return sum(shares) / count

    return {"R@5": recall(5), "R@10": recall(10), "MRR": figures(asked, answers)["MRR"]}


async def compare(
    title: str,
    archive: Archive,
    texts: dict[Doc, str],
    asked: Sequence[Question],
    judge: Callable[[Sequence[Question], Sequence[Sequence[Found]]], dict[str, float]] = figures,
) -> list[list[Found]]:
    await archive.search(Query("warm", limit=1))
    rows: list[tuple[str, list[list[Found]], float]] = []
    start = time.process_time()
    found = await ours(archive, asked)
    seconds = time.process_time() - start
    rows.append(("search_transcript", found, seconds))
    rows.append(("the same, without what follows a question", hits_alone(found), seconds))
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
    return found


# Identifiers


def identifiers(texts: dict[Doc, str]) -> dict[str, list[Question]]:
    """By kind of query. Parts are cut here by rules of our own, apart from the product's.

    What answers a name is every message that says it, however its parts are written together.
    """
    plain = {doc: re.sub(r"[\W_]+", "", text).lower() for doc, text in texts.items()}
    part_holders: dict[str, set[Doc]] = defaultdict(set)
    names: dict[str, str] = {}
    for doc, text in texts.items():
        for word in set(re.findall(r"[A-Za-z0-9_]+", text)):
            parts = cut(word)
            for part in {*parts, word.lower()}:
                part_holders[part].add(doc)
            told = sum(len(part) > 2 and part.isalpha() for part in parts)
            if told > 1 and len(parts) <= MAX_PARTS:  # what is less is hex, or no name
                names.setdefault("".join(parts), word)
    asked: dict[str, list[Question]] = {"whole": [], "all parts": [], "one rare part": []}
    for joined, name in sorted(names.items()):
        holders = frozenset(doc for doc, text in plain.items() if joined in text)
        if len(holders) > MAX_HOLDERS:
            continue
        asked["whole"].append(Question(name, holders))
        asked["all parts"].append(Question(" ".join(cut(name)), holders))
        asked["one rare part"] += [
            Question(part, frozenset(part_holders[part]))
            for part in cut(name)
            if len(part) >= 4 and len(part_holders[part]) <= MAX_HOLDERS
        ]
    return asked


def cut(word: str) -> list[str]:
    """The parts of an identifier, in lower case: at "_", at a capital, between letter and digit."""
    pieces = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", word)
    return [piece.lower() for piece in pieces]


# LoCoMo


def locomo(path: Path) -> Iterator[tuple[str, list[tuple[str, float]], list[tuple[str, set[int]]]]]:
    """For each conversation: its name, its turns with their times, questions and evidence."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    for file in files:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
        # The published file is a list of conversations, older ones hold one each.
        for number, item in enumerate([content] if "qa" in content else content):
            talk = item.get("conversation", item)
            turns: list[tuple[str, float]] = []
            places: dict[str, int] = {}
            for session in range(1, 100):
                if f"session_{session}" not in talk:
                    continue
                begin = _moment(talk[f"session_{session}_date_time"])
                for turn in talk[f"session_{session}"]:
                    places[turn["dia_id"]] = len(turns)
                    caption = turn.get("blip_caption")
                    said = f"{turn['speaker']}: {turn.get('text', '')}"
                    turns.append((f"{said} [{caption}]" if caption else said, begin + len(turns)))
            asked = [
                (row["question"], {places[name] for name in row["evidence"] if name in places})
                for row in item["qa"]
                if row.get("evidence")
            ]
            yield f"{file.stem}-{number}", turns, [row for row in asked if row[1]]


def _moment(text: str) -> float:
    moment = datetime.strptime(text, "%I:%M %p on %d %B, %Y")  # noqa: DTZ007
    return moment.replace(tzinfo=UTC).timestamp()


async def measure_locomo(path: Path, folder: Path) -> None:
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


async def main(arguments: Any) -> None:
    texts = texts_of_transcripts()
    with TemporaryDirectory() as folder:
        root = Path(folder)
        async with open_archive(root / "archive", index_root=root / "index") as archive:
            await fill_with_transcripts(archive)
            for part in PARTS:
                if arguments.part in {None, part}:
                    asked = questions(part)
                    found = await compare(f"Own questions, {part}", archive, texts, asked)
                    if arguments.misses:
                        show_misses(asked, found)
            for kind, asked in identifiers(texts).items():
                found = await compare(f"Identifiers, {kind}", archive, texts, asked)
                if arguments.misses:
                    show_misses(asked, found)
        if arguments.locomo is not None:
            await measure_locomo(arguments.locomo, root)


def show_misses(asked: Sequence[Question], found: Sequence[Sequence[Found]]) -> None:
    for question, hits in zip(asked, found, strict=True):
        if not question.answers & {doc for docs in hits[:5] for doc in docs}:
            print("missed:", question.text, sorted(question.answers), list(hits[:3]))


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--part", choices=PARTS)
parser.add_argument("--locomo", type=Path)
parser.add_argument("--misses", action="store_true")
anyio.run(main, parser.parse_args())

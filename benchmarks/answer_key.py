"""Measure how much of the answers to readers' questions a context contains, close together.

Run: python benchmarks/answer_key.py [READERS] [--targets 10000,4000] [--sessions pi,depot]

No model is asked; a target takes about 20 s of CPU. Each reader session is compacted at its end.
Three contexts of equal size are compared: `ours` (compacted without a model), `control` (45
lines of code that know only who wrote what) and `newest` (the newest text). The words of each
answer are weighted by rarity. `window` is the largest share of them within 700 characters. `strong`
is the share of questions with a window of at least .6. Differences below .005 are noise. The
measure compares words, not meaning, so readers must confirm its results. READERS is a folder with
`questions/` and `sessions/`, by default benchmarks/readers.
"""

import argparse
import json
import math
import re
import statistics
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction import CompactRequest, compact, formats, open_archive
from context_compaction.formats.session_files.read import decompress, read_conversation
from context_compaction.messages.model import Block, Message, Text, Thinking, ToolCall, ToolResult
from context_compaction.messages.speakers import user_text
from context_compaction.tokens.counter import counter_for

READERS = Path(__file__).resolve().parent / "readers"
PI_SESSION = READERS.parents[1] / "examples" / "pi-session.jsonl"
WINDOW_CHARS = 700
STRONG = 0.6
RESULT_CHARS = 1_500
TAIL_SHARES = (0.35, 0.5, 0.65, 0.8)
# Steps of the control: characters of a user's text, of an agent's text, and agent texts in a turn.
LENGTHS = ((300, 300, 1), (1000, 700, 1), (2000, 1600, 2), (4000, 4000, 4), (12000, 12000, 99))
WORD = re.compile(r"[A-Za-z0-9_\u0080-\uffff][\w./:@#+-]*\w|\d")
COMMON_WORDS = """
    a an and are as at be but by did do does for from had has have he her his how i if in into
    is it its me my of on or our she so than that the their them then there these they this to
    too was we were what when where which who why will with would you your no not all any only
    also both after before each
"""
COMMON = frozenset(COMMON_WORDS.split())
COUNT = counter_for("gpt-4o")  # o200k without a margin


@dataclass(frozen=True, slots=True)
class ReaderSession:
    """A session up to its cut, with the answers to its questions.

    Attributes:
        name: Name of the session.
        payload: Messages in the host's format.
        format: Name of that format.
        messages: Parsed messages.
        answers: Correct answers to the questions.
    """

    name: str
    payload: list[dict[str, Any]]
    format: str
    messages: tuple[Message, ...]
    answers: tuple[str, ...]

    @property
    def system(self) -> tuple[Message, ...]:
        """System messages."""
        return tuple(message for message in self.messages if message.role == "system")

    @property
    def rest(self) -> tuple[Message, ...]:
        """All messages but the system messages."""
        return tuple(message for message in self.messages if message.role != "system")


def sessions(chosen: Iterable[str] = (), readers: Path = READERS) -> Iterator[ReaderSession]:
    """Read the sessions of a folder, or those in `chosen`."""
    names = set(chosen)
    for path in sorted(readers.glob("questions/*.end.json")):
        name = path.name.split(".")[0]
        if names and name not in names:
            continue
        file = readers / "sessions" / f"{name}.jsonl.gz"
        file = file if file.exists() else PI_SESSION
        content = json.loads(path.read_text(encoding="utf-8"))
        lines = decompress(file.read_bytes(), file.name).splitlines(keepends=True)
        conversation = read_conversation(
            b"".join(lines[: content.get("cut_lines") or None]), name=file.name
        )
        yield ReaderSession(
            name,
            conversation.payload,
            conversation.format,
            tuple(formats.parse(conversation.payload, format=conversation.format)),
            tuple(question["answer"] for question in content["questions"]),
        )


def words(text: str) -> list[str]:
    """Split `text` into lower-case words, paths and numbers."""
    return [word.strip(".:/-").lower() for word in WORD.findall(text)]


def as_text(messages: Iterable[Message]) -> str:
    """Render `messages` as the plain text that a reader gets."""
    return "\n\n".join(
        f"### {message.role}\n" + "\n".join(filter(None, map(_block_text, message.blocks)))
        for message in messages
    )


def _block_text(block: Block) -> str:
    match block:
        case Text():
            return block.text
        case Thinking():
            return f"[thinking] {block.text}" if block.text else ""
        case ToolCall():
            return f"[call {block.name} {json.dumps(block.arguments, ensure_ascii=False)}]"
        case ToolResult():
            return "[result]\n" + "\n".join(map(_block_text, block.content))
        case _:
            return f"[{type(block).__name__}]"


def newest(messages: Sequence[Message], target_tokens: int) -> str:
    """Return the newest text that counts at most `target_tokens`."""
    text = as_text(messages)
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        if COUNT.text(text[middle:]) <= target_tokens:
            high = middle
        else:
            low = middle + 1
    return text[low:]


def control(messages: Sequence[Message], target_tokens: int) -> str:
    """Return excerpts of the user's and the agent's texts, then the newest messages.

    Excerpts become longer in steps, newest turns first, while tokens are left. Long results are
    cut. Four shares for the newest messages are tried; the largest result that fits is returned.
    """
    best = ""
    for share in TAIL_SHARES:
        text = _control_with(messages, target_tokens, share)
        if COUNT.text(best) < COUNT.text(text) <= target_tokens or not best:
            best = text
    return best


def _control_with(messages: Sequence[Message], target_tokens: int, tail_share: float) -> str:
    tail: list[str] = []
    free_tokens, start = int(target_tokens * tail_share), len(messages)
    while start:
        text = as_text((_with_short_results(messages[start - 1]),))
        size = COUNT.text(text)
        if size > free_tokens:
            break
        tail, free_tokens, start = [text, *tail], free_tokens - size, start - 1
    free_tokens += int(target_tokens * (1 - tail_share)) - 50
    turns = _turns(messages[:start])
    lines: dict[tuple[int, int, int], str] = {}
    for lengths in LENGTHS:
        for index in reversed(range(len(turns))):
            for key, text in _entries(turns[index], index, lengths):
                added = COUNT.text(text) - (COUNT.text(lines[key]) if key in lines else -2)
                if added <= free_tokens:
                    lines[key], free_tokens = text, free_tokens - added
    return "\n".join(lines[key] for key in sorted(lines)) + "\n\n" + "\n\n".join(tail)


@dataclass(slots=True)
class _Turn:
    number: int
    request: str
    agent_texts: list[tuple[int, str]]


def _turns(messages: Sequence[Message]) -> list[_Turn]:
    turns: list[_Turn] = []
    for number, message in enumerate(messages):
        texts = [block.text for block in message.blocks if isinstance(block, Text)]
        text = "\n".join(texts).strip()
        typed = user_text(message).strip() if message.role == "user" else ""
        if typed:
            turns.append(_Turn(number, " ".join(typed.split()), []))
        elif not turns:
            turns.append(_Turn(number, "", []))
        if message.role == "assistant" and text:
            turns[-1].agent_texts.append((number, text))
    return turns


def _entries(
    turn: _Turn, index: int, lengths: tuple[int, int, int]
) -> Iterator[tuple[tuple[int, int, int], str]]:
    user_chars, agent_chars, max_texts = lengths
    if turn.request:
        yield (index, 0, 0), f"[{turn.number}] user: {turn.request[:user_chars]}"
    for n, text in turn.agent_texts[-max_texts:]:
        yield (index, 1, n), f"agent [{n}]: {text[:agent_chars]}"


def _with_short_results(message: Message) -> Message:
    def clipped(block: Block) -> Block:
        if not isinstance(block, ToolResult):
            return block
        content = tuple(
            replace(part, text=part.text[:RESULT_CHARS] + "\n[...]")
            if isinstance(part, Text) and len(part.text) > RESULT_CHARS
            else part
            for part in block.content
        )
        return replace(block, content=content)

    return replace(message, blocks=tuple(map(clipped, message.blocks)))


async def compacted(session: ReaderSession, target_tokens: int) -> str:
    """Return the context that `compact()` makes without a model."""
    request = CompactRequest(
        format=session.format,
        session_id="reader",
        model="gpt-4o",
        target_tokens=target_tokens + COUNT.messages(session.system),
        summarizer="extractive",
    )
    with tempfile.TemporaryDirectory() as folder:
        async with open_archive(Path(folder)) as archive:
            result = await compact(session.payload, request, archive=archive)
    return as_text(formats.parse(result.messages, format=session.format))


def score(
    text: str, answers: Sequence[str], frequency: Mapping[str, int], total: int
) -> list[float]:
    """Return the largest weighted share of each answer's words in one window of `text`."""
    positions: defaultdict[str, list[int]] = defaultdict(list)
    for match in WORD.finditer(text.lower()):
        positions[match.group().strip(".:/-")].append(match.start())
    scores: list[float] = []
    for answer in answers:
        weight = {
            word: math.log(1 + total / frequency[word])
            for word in words(answer)
            if frequency.get(word) and word not in COMMON and len(word) > 1
        }
        if weight:
            hits = sorted((start, w) for w in weight for start in positions.get(w, ())[:400])
            scores.append(_best_window(hits, weight) / sum(weight.values()))
    return scores


def _best_window(hits: Sequence[tuple[int, str]], weight: Mapping[str, float]) -> float:
    inside: Counter[str] = Counter()
    best = current = 0.0
    first = 0
    for position, word in hits:
        inside[word] += 1
        current += weight[word] if inside[word] == 1 else 0
        while hits[first][0] < position - WINDOW_CHARS:
            inside[hits[first][1]] -= 1
            current -= 0 if inside[hits[first][1]] else weight[hits[first][1]]
            first += 1
        best = max(best, current)
    return best


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of one kind of context.

    Attributes:
        values: Score of each question, from 0 to 1.
        sizes: Tokens of each context without system messages.
    """

    values: list[float]
    sizes: list[int]

    @property
    def window(self) -> float:
        """Mean score."""
        return statistics.mean(self.values)

    @property
    def strong(self) -> float:
        """Share of the questions with a score of at least `STRONG`."""
        return statistics.mean(value >= STRONG for value in self.values)


def measure(
    chosen: Iterable[ReaderSession], target_tokens: int, *, controls: bool = True
) -> dict[str, Scores]:
    """Score the contexts of every session; system messages are added to `target_tokens`."""
    scores: defaultdict[str, Scores] = defaultdict(lambda: Scores([], []))
    for session in chosen:
        system = as_text(session.system)
        frequency = Counter(w for m in session.messages for w in set(words(as_text((m,)))))
        texts = {"ours": anyio.run(partial(compacted, session, target_tokens))}
        if controls:
            texts["control"] = system + control(session.rest, target_tokens)
            texts["newest"] = system + newest(session.rest, target_tokens)
        for name, text in texts.items():
            scores[name].values.extend(
                score(text, session.answers, frequency, len(session.messages))
            )
            scores[name].sizes.append(COUNT.text(text) - COUNT.text(system))
    return dict(scores)


def main() -> None:
    """Print a line for each target and kind of context."""
    parser = argparse.ArgumentParser()
    parser.add_argument("readers", type=Path, nargs="?", default=READERS)
    parser.add_argument("--targets", default="10000,4000")
    parser.add_argument("--sessions", default="")
    options = parser.parse_args()
    chosen = list(sessions(filter(None, options.sessions.split(",")), options.readers))
    for target_tokens in map(int, options.targets.split(",")):
        for name, scores in measure(chosen, target_tokens).items():
            print(
                f"target {target_tokens:6,}  {name:8} window {scores.window:.4f}  "
                f"strong {scores.strong:.4f}  {len(scores.values)} questions, "
                f"{statistics.mean(scores.sizes):,.0f} tokens"
            )


if __name__ == "__main__":
    main()

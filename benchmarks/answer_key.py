"""Answer key: how much of what readers must answer a context contains, closely together.

Run: python benchmarks/answer_key.py [--targets 10000,4000] [--sessions pi,depot]

It asks no model and takes about 20 s of CPU per target. Each published reader session is compacted
at its end. Three contexts of the same size are compared: `ours` (the deterministic writer),
`control` (45 lines that know only who said what) and `newest` (the newest text). Each answer's
content words are weighted by rarity. `window` is the best share of them inside 700 characters;
`strong` is the share of questions with a window of at least .6. It compares texts, not meaning:
differences below .005 are noise, and readers must confirm what it prefers. A heuristic that does
not put `ours` ahead of `control` on sessions that nobody tuned on does not earn its lines.
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
# Characters of the user's words and of the agent's, and how many of the agent's texts a turn has.
LENGTHS = ((300, 300, 1), (1000, 700, 1), (2000, 1600, 2), (4000, 4000, 4), (12000, 12000, 99))
WORD = re.compile(r"[A-Za-z0-9_\u0080-\uffff][\w./:@#+-]*\w|\d")
COMMON_WORDS = """
    a an and are as at be but by did do does for from had has have he her his how i if in into
    is it its me my of on or our she so than that the their them then there these they this to
    too was we were what when where which who why will with would you your no not all any only
    also both after before each
"""
COMMON = frozenset(COMMON_WORDS.split())
COUNT = counter_for("gpt-4o")  # o200k without a margin: sizes are the same for all


@dataclass(frozen=True, slots=True)
class ReaderSession:
    """A session up to its cut, with the questions that a reader of its context must answer."""

    name: str
    payload: list[dict[str, Any]]
    format: str
    messages: tuple[Message, ...]
    answers: tuple[str, ...]

    @property
    def system(self) -> tuple[Message, ...]:
        return tuple(message for message in self.messages if message.role == "system")

    @property
    def rest(self) -> tuple[Message, ...]:
        return tuple(message for message in self.messages if message.role != "system")


def sessions(chosen: Iterable[str] = (), readers: Path = READERS) -> Iterator[ReaderSession]:
    """Read the published sessions, or those that `chosen` names."""
    wanted = set(chosen)
    for path in sorted(readers.glob("questions/*.end.json")):
        name = path.name.split(".")[0]
        if wanted and name not in wanted:
            continue
        file = readers / "sessions" / f"{name}.jsonl.gz"
        file = file if file.exists() else PI_SESSION
        asked = json.loads(path.read_text(encoding="utf-8"))
        lines = decompress(file.read_bytes(), file.name).splitlines(keepends=True)
        found = read_conversation(b"".join(lines[: asked.get("cut_lines") or None]), name=file.name)
        yield ReaderSession(
            name,
            found.payload,
            found.format,
            tuple(formats.parse(found.payload, format=found.format)),
            tuple(question["answer"] for question in asked["questions"]),
        )


def words(text: str) -> list[str]:
    """Split `text` into lower-case words, paths and numbers."""
    return [word.strip(".:/-").lower() for word in WORD.findall(text)]


def shown(messages: Iterable[Message]) -> str:
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
    text = shown(messages)
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        if COUNT.text(text[middle:]) <= target_tokens:
            high = middle
        else:
            low = middle + 1
    return text[low:]


def control(messages: Sequence[Message], target_tokens: int) -> str:
    """The user's and the agent's words, from short to full, then the newest messages.

    Newer words come first, and long results are cut. The best filled of four shares is returned.
    """
    best = ""
    for share in TAIL_SHARES:
        text = _control_with(messages, target_tokens, share)
        if COUNT.text(best) < COUNT.text(text) <= target_tokens or not best:
            best = text
    return best


def _control_with(messages: Sequence[Message], target_tokens: int, tail_share: float) -> str:
    tail: list[str] = []
    room, at = int(target_tokens * tail_share), len(messages)
    while at:
        text = shown((_with_short_results(messages[at - 1]),))
        size = COUNT.text(text)
        if size > room:
            break
        tail, room, at = [text, *tail], room - size, at - 1
    room += int(target_tokens * (1 - tail_share)) - 50
    turns = _turns(messages[:at])
    lines: dict[tuple[int, int, int], str] = {}
    for lengths in LENGTHS:
        for at_turn in reversed(range(len(turns))):
            for key, text in _entries(turns[at_turn], at_turn, lengths):
                more = COUNT.text(text) - (COUNT.text(lines[key]) if key in lines else -2)
                if more <= room:
                    lines[key], room = text, room - more
    return "\n".join(lines[key] for key in sorted(lines)) + "\n\n" + "\n\n".join(tail)


@dataclass(slots=True)
class _Turn:
    number: int
    asked: str
    said: list[tuple[int, str]]


def _turns(messages: Sequence[Message]) -> list[_Turn]:
    turns: list[_Turn] = []
    for number, message in enumerate(messages):
        texts = [block.text for block in message.blocks if isinstance(block, Text)]
        said = "\n".join(texts).strip()
        typed = user_text(message).strip() if message.role == "user" else ""
        if typed:
            turns.append(_Turn(number, " ".join(typed.split()), []))
        elif not turns:
            turns.append(_Turn(number, "", []))
        if message.role == "assistant" and said:
            turns[-1].said.append((number, said))
    return turns


def _entries(
    turn: _Turn, at_turn: int, lengths: tuple[int, int, int]
) -> Iterator[tuple[tuple[int, int, int], str]]:
    user_chars, agent_chars, most = lengths
    if turn.asked:
        yield (at_turn, 0, 0), f"[{turn.number}] user: {turn.asked[:user_chars]}"
    for n, text in turn.said[-most:]:
        yield (at_turn, 1, n), f"agent [{n}]: {text[:agent_chars]}"


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


async def ours(session: ReaderSession, target_tokens: int) -> str:
    """The context that `compact()` leaves without a model."""
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
    return shown(formats.parse(result.messages, format=session.format))


def score(
    text: str, answers: Sequence[str], frequency: Mapping[str, int], total: int
) -> list[float]:
    """For each answer, the best weighted share of its words inside one window of `text`."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for match in WORD.finditer(text.lower()):
        places[match.group().strip(".:/-")].append(match.start())
    scores: list[float] = []
    for answer in answers:
        weight = {
            word: math.log(1 + total / frequency[word])
            for word in words(answer)
            if frequency.get(word) and word not in COMMON and len(word) > 1
        }
        if weight:
            hits = sorted((place, w) for w in weight for place in places.get(w, ())[:400])
            scores.append(_best_window(hits, weight) / sum(weight.values()))
    return scores


def _best_window(hits: Sequence[tuple[int, str]], weight: Mapping[str, float]) -> float:
    inside: Counter[str] = Counter()
    best = now = 0.0
    first = 0
    for place, word in hits:
        inside[word] += 1
        now += weight[word] if inside[word] == 1 else 0
        while hits[first][0] < place - WINDOW_CHARS:
            inside[hits[first][1]] -= 1
            now -= 0 if inside[hits[first][1]] else weight[hits[first][1]]
            first += 1
        best = max(best, now)
    return best


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one kind of context over all questions, and the mean size of the contexts."""

    values: list[float]
    sizes: list[int]

    @property
    def window(self) -> float:
        return statistics.mean(self.values)

    @property
    def strong(self) -> float:
        return statistics.mean(value >= STRONG for value in self.values)


def measure(
    found: Iterable[ReaderSession], target_tokens: int, *, controls: bool = True
) -> dict[str, Scores]:
    """Score the contexts of every session at `target_tokens`, beside a session's system message."""
    scores: defaultdict[str, Scores] = defaultdict(lambda: Scores([], []))
    for session in found:
        system = shown(session.system)
        frequency = Counter(w for m in session.messages for w in set(words(shown((m,)))))
        texts = {"ours": anyio.run(partial(ours, session, target_tokens))}
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
    found = list(sessions(filter(None, options.sessions.split(",")), options.readers))
    for target_tokens in map(int, options.targets.split(",")):
        for name, scores in measure(found, target_tokens).items():
            print(
                f"target {target_tokens:6,}  {name:8} window {scores.window:.4f}  "
                f"strong {scores.strong:.4f}  {len(scores.values)} questions, "
                f"{statistics.mean(scores.sizes):,.0f} tokens"
            )


if __name__ == "__main__":
    main()

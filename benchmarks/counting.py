"""What counting costs: CPU time for a transcript, cold, again, and grown by one turn.

    python benchmarks/counting.py [session.jsonl]

The transcript is a real coding session (pi's format), repeated with every text made unlike the one
before, until it has the wanted number of tokens. In the same run the same text goes through
tiktoken alone, and through len(text) // 4, so that the ratios mean something on any machine.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from context_compaction import formats
from context_compaction.messages.model import Block, Message, Messages, Text, ToolCall, ToolResult
from context_compaction.tokens.counter import MessageCounter, message_bytes
from context_compaction.tokens.models import profile_for
from context_compaction.tokens.tokenizers import ModelCounter, o200k_count
from context_compaction.tokens.vocabulary import load_o200k

SESSION = Path(__file__).parent.parent / "examples" / "pi-session.jsonl"
SIZES_TOKENS = (200_000, 1_000_000)
MODEL = "claude-opus-4-8"
ROUNDS = 5


def main() -> None:
    print(f"loading the vocabulary: {cpu_ms(load_o200k):.0f} ms of CPU")
    session = read_session(Path(sys.argv[1]) if len(sys.argv) > 1 else SESSION)
    for size_tokens in SIZES_TOKENS:
        report(grow(session, size_tokens))


def report(messages: Messages) -> None:
    encode = load_o200k().encode
    texts = [text for message in messages for text in texts_of(message)]
    counter = fresh_counter()
    counter.messages(messages)
    raw_ms = best_ms(lambda: sum(len(encode(text, disallowed_special=())) for text in texts))
    costs_ms = {
        "tiktoken alone": raw_ms,
        "len(text) // 4": best_ms(lambda: sum(len(text) // 4 for text in texts)),
        "count, cold": best_ms(lambda: fresh_counter().messages(messages)),
        "count, again": best_ms(lambda: counter.messages(messages)),
        "count, grown by a turn": best_ms(lambda: counter.messages(messages + newest_turn())),
        "request bytes": best_ms(lambda: sum(map(message_bytes, messages))),
    }
    tokens = sum(map(o200k_count, texts))
    print(
        f"\n{len(messages)} messages, {len(texts)} texts, {sum(map(len, texts)):,} characters, "
        f"{tokens:,} o200k tokens"
    )
    for label, cost_ms in costs_ms.items():
        print(f"  {label:24} {cost_ms:9.2f} ms   {cost_ms / raw_ms:6.3f} x tiktoken")


def fresh_counter() -> MessageCounter:
    """A counter that remembers nothing yet."""
    profile = profile_for(MODEL)
    return MessageCounter(ModelCounter(profile), profile.image, profile.margin)


def read_session(path: Path) -> Messages:
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return formats.parse(
        [line["message"] for line in lines if line["type"] == "message"], format="pi"
    )


def grow(session: Messages, size_tokens: int) -> Messages:
    """The session over and over, every text made unlike the one before."""
    messages: list[Message] = []
    tokens = 0
    while tokens < size_tokens:
        message = session[len(messages) % len(session)]
        blocks = tuple(mark(block, f"{len(messages)}: ") for block in message.blocks)
        messages.append(Message(message.role, blocks, source=message.source))
        tokens += sum(map(o200k_count, texts_of(messages[-1])))
    return tuple(messages)


def mark(block: Block, label: str) -> Block:
    match block:
        case Text():
            return Text(label + block.text)
        case ToolCall():
            return ToolCall(block.call_id, block.name, {"label": label, "call": block.arguments})
        case ToolResult():
            parts = [Text(label + part.text) for part in block.content if isinstance(part, Text)]
            return ToolResult(block.call_id, tuple(parts))
        case _:
            return block


def texts_of(message: Message) -> list[str]:
    texts: list[str] = []
    for block in message.blocks:
        if isinstance(block, Text):
            texts.append(block.text)
        elif isinstance(block, ToolCall):
            texts.append(json.dumps(block.arguments, ensure_ascii=False))
        elif isinstance(block, ToolResult):
            texts.extend(part.text for part in block.content if isinstance(part, Text))
    return texts


def newest_turn() -> Messages:
    said = f"What changed at {time.process_time_ns()}? "
    return (Message("user", (Text(said * 4),)), Message("assistant", (Text(said * 200),)))


def cpu_ms(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return (time.process_time() - started) * 1000


def best_ms(work: Callable[[], object]) -> float:
    return min(cpu_ms(work) for _ in range(ROUNDS))


if __name__ == "__main__":
    main()

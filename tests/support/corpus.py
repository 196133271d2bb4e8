"""The real transcripts of the repository, read without code of the product.

Each transcript is the list that its host would send. If the file format has no such list (Claude
Code's session lines, text dialogues), this module builds it, independently of the product.
`tests/data/NOTICE.md` names sources and licenses.
"""

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .json_types import Json, is_list, is_object

DATA = Path(__file__).parent.parent / "data"
PI_SESSION = Path(__file__).parent.parent.parent / "examples" / "pi-session.jsonl"

_SPEAKER = re.compile(r"^(user|assistant|tool): ", re.MULTILINE)

# One of each source, short and long, with and without tool calls, with and without known defects.
_SAMPLE = (
    "claude-code/daaain_edge_cases",
    "claude-code/daaain_todowrite_examples",
    "claude-code/simonw_sample_session.json",
    "pi/session",
    "swe-agent/ctf-web-i-got-id",
    "swe-agent/function-calling-simple",
    "swe-agent/marshmallow-1867-default",
    "swe-agent/marshmallow-1867-function-calling-from-source",
    "tau-bench/airline-task-0-trial-0",
    "tau-bench/airline-task-13-trial-2",
    "tau-bench/airline-few-shot-0",
    "tau-bench/retail-few-shot-0",
)


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation with its format and origin.

    Attributes:
        name: `folder/file`, unique.
        format: "anthropic", "openai-chat" or "pi".
        payload: The raw messages. Shared between tests: never edit it.
        kind: "coding", "service" or "sample".
        path: File of the repository with the conversation.
    """

    name: str
    format: str
    payload: list[Json]
    kind: str
    path: Path


@cache
def all_transcripts() -> list[Transcript]:
    """Return every real transcript, in a stable order."""
    return [*_pi(), *_tau_bench(), *_few_shot(), *_swe_agent(), *_claude_code()]


@cache
def sample_transcripts() -> list[Transcript]:
    """Return twelve transcripts of all kinds, for tests that must be fast."""
    by_name = {transcript.name: transcript for transcript in all_transcripts()}
    return [by_name[name] for name in _SAMPLE]


def read_gzip(path: Path) -> str:
    """Return the text of a gzip file."""
    return gzip.decompress(path.read_bytes()).decode("utf-8")


def _pi() -> Iterator[Transcript]:
    lines = map(json.loads, PI_SESSION.read_text(encoding="utf-8").splitlines())
    payload = [line["message"] for line in lines if line["type"] == "message"]
    yield Transcript("pi/session", "pi", payload, "coding", PI_SESSION)


def _tau_bench() -> Iterator[Transcript]:
    path = DATA / "tau-bench" / "gpt-4o-airline-tasks-0-24.json.gz"
    for run in json.loads(read_gzip(path)):
        name = f"tau-bench/airline-task-{run['task_id']}-trial-{run['trial']}"
        yield Transcript(name, "openai-chat", run["traj"], "service", path)


def _few_shot() -> Iterator[Transcript]:
    for shop in ("Airline", "Retail"):
        path = DATA / "tau-bench" / f"Mock{shop}DomainEnv-few_shot.jsonl.gz"
        for index, line in enumerate(read_gzip(path).splitlines()):
            payload = _dialogue(json.loads(line)["messages_display"])
            name = f"tau-bench/{shop.lower()}-few-shot-{index}"
            yield Transcript(name, "openai-chat", payload, "service", path)


def _dialogue(text: str) -> list[Json]:
    """Return chat messages from `user: …`, `assistant: …` and `tool: …` paragraphs.

    The dialogues do not name the calls. So `assistant: None` (a call) is dropped, and the result
    of a tool becomes text of the user, with its label.
    """
    starts = [*_SPEAKER.finditer(text)]
    ends = [match.start() - 1 for match in starts[1:]] + [len(text)]
    messages: list[Json] = []
    for match, end in zip(starts, ends, strict=True):
        speaker, words = match[1], text[match.end() : end]
        if speaker == "tool":
            messages.append({"role": "user", "content": f"tool: {words}"})
        elif words != "None":
            messages.append({"role": speaker, "content": words})
    return messages


def _swe_agent() -> Iterator[Transcript]:
    for path in sorted((DATA / "swe-agent").glob("*.traj.gz")):
        history = json.loads(read_gzip(path))["history"]
        name = f"swe-agent/{path.name.removesuffix('.traj.gz')}"
        payload = [_chat_message(entry) for entry in history]
        yield Transcript(name, "openai-chat", payload, "coding", path)


def _chat_message(entry: Json) -> Json:
    """Return the message of a history entry, without the internal fields of the agent."""
    message = {key: entry[key] for key in ("role", "content", "tool_calls") if key in entry}
    if entry.get("tool_call_ids"):
        [message["tool_call_id"]] = entry["tool_call_ids"]
    return message


def _claude_code() -> Iterator[Transcript]:
    for path in sorted((DATA / "claude-code").glob("*.gz")):
        text = read_gzip(path)
        if path.name.endswith(".json.gz"):
            lines = json.loads(text)["loglines"]
        else:
            lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        name = f"claude-code/{path.name.removesuffix('.gz').removesuffix('.jsonl')}"
        yield Transcript(name, "anthropic", _anthropic_messages(lines), "sample", path)


def _anthropic_messages(lines: list[Any]) -> list[Json]:
    """Return the API's messages from session lines; other lines are skipped.

    Claude Code writes one line for each block of a response. Consecutive lines that share a
    message ID are one message.
    """
    messages: list[Json] = []
    last_id = None
    for line in lines:
        message = line.get("message") if is_object(line) else None
        if not is_object(message) or not _is_content(message.get("content")):
            continue
        entry = {"role": message["role"], "content": message["content"]}
        if last_id is not None and message.get("id") == last_id:
            merged = [*messages[-1]["content"], *entry["content"]]
            messages[-1] = {**entry, "content": merged}
        else:
            messages.append(entry)
        last_id = message.get("id")
    return messages


def _is_content(content: Any) -> bool:
    """Whether the API accepts this content; one sample has damaged lines on purpose."""
    if is_list(content):
        return all(is_object(block) for block in content)
    return isinstance(content, str)

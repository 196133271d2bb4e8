"""Work in the background: commands, sub-agents and tasks that still run after their call returned.

Their IDs are the only way to their output, so every summary lists them until they end.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from context_compaction.activity.calls import classify, is_recalling, words_in_name
from context_compaction.messages import placeholders
from context_compaction.messages.model import (
    Message,
    Messages,
    Text,
    ToolCall,
    ToolResult,
    is_list,
    named_arguments,
    one_line,
)
from context_compaction.messages.speakers import passages_of
from context_compaction.messages.tool_results import result_text

# Lower-case words of results whose work continues, and the tool that reads its output. "{tool}" is
# the name of the tool that was called.
_STARTS: Mapping[str, str] = {
    # Claude Code
    "running in background with id": "BashOutput or TaskOutput",
    "moved to the background (id": "BashOutput or TaskOutput",
    "backgrounded by user with id": "BashOutput or TaskOutput",
    "async agent launched": "TaskOutput",
    "workflow launched in background": "TaskOutput",
    "monitor started (task": "TaskOutput",
    # Codex
    "process running with session id": "write_stdin",
    "script running with cell id": "wait",
    # Copilot CLI
    "background with shellid": "read_{tool}",
    "is still running after": "read_{tool}",
    "background with agent_id": "read_agent",
    # OpenCode and its plugins
    "for polling this task with task_status": "task_status",
    "background task launched": "background_output",
    "<pty_spawned>": "pty_read",
    # Gemini CLI
    "moved to background (pid": "read_background_output",
    # Any other host
    "in background": "",
    "in the background": "",
}
# Tools that start an agent and return its ID without such words.
_SPAWNING_TOOLS = {"spawn_agent": "wait_agent"}
# Arguments with which a call asks for work in the background.
_ASKING_FLAGS = ("run_in_background", "is_background", "background", "detach", "async")
_ASKING_MODES = ("async", "background", "detached")
_STILL_RUNS = (
    "still running", "running with", "**running**", '"running"', "status: running",
    "state: running", "status>running", "status=running",
)  # fmt: skip
_ENDED = re.compile(r"\b(?:complet|finish|exit|kill|terminat|stopp|fail|cancel|closed|shut down)")
_STOPPING_WORDS = frozenset({"kill", "stop", "cancel", "close"})
# Results of these kinds of tools quote texts.
_READING_KINDS = ("read", "search", "list", "web")
_ID = re.compile(
    r"(?:(?<![a-zA-Z])p?id|(?<![A-Z])I[dD]|(?<![A-Za-z])PID)\b"
    r"[\"'`*]*(?:\s?[:=>][\s\"'`*]*|\s(?=[\w-]*\d))([\w.-]{0,127}\w)|\(task (\w{1,127})"
)
_OUTPUT_FILE = re.compile(
    r"output(?:[-_]file| is being written to)[:=>\s\"']{1,3}(\S{2,300}?)[.,]?(?=\s|<|$)"
)
_ID_KEYS = ("id", "ids", "target", "targets")
_PURPOSE_KEYS = ("description", "command", "cmd", "prompt", "message", "task", "title")
# Hosts put what they say about a job into the first or last lines of a result.
_HEAD_LINES, _TAIL_LINES, _END_CHARS = 8, 3, 4_000
# Only the newest jobs are followed, because each later text is searched for each job.
_MAX_JOBS = 50


class RunningJob(NamedTuple):
    """Work that still runs at the end of a list.

    Attributes:
        line: Its ID, a colon, its purpose, its tool, and how to read its output.
        message_index: Index of the message that names its ID; None if only an earlier summary does.
    """

    line: str
    message_index: int | None


class _Start(NamedTuple):
    job_id: str
    line: str
    reader: str


def running_jobs(messages: Messages, carried: Iterable[str] = ()) -> list[RunningJob]:
    """Return the work that still runs at the end of `messages`, oldest first.

    Args:
        messages: The conversation.
        carried: The lines of such work in earlier summaries.
    """
    jobs = {line.partition(":")[0]: RunningJob(line, None) for line in carried}
    calls: dict[str, ToolCall] = {}
    for index, message in enumerate(messages):
        for block in message.blocks:
            if isinstance(block, ToolCall):
                calls[block.call_id] = block
            elif isinstance(block, ToolResult):
                _follow_result(jobs, index, calls.get(block.call_id), block)
            elif message.role != "assistant" and isinstance(block, Text) and jobs:
                _follow_notes(jobs, message, block)
    return list(jobs.values())


def started_line(text: str) -> str:
    """Return the line of a result that names work in the background; "" if there is none."""
    start = _start_in(_ends_of(text))
    return one_line(start.line) if start else ""


def _follow_result(
    jobs: dict[str, RunningJob], index: int, call: ToolCall | None, result: ToolResult
) -> None:
    """Add the work that a result starts, and remove the work that has ended by it."""
    text = _ends_of(result_text(result))
    if named := _named_in(jobs, text, call):
        is_stop = call is not None and bool(words_in_name(call.name) & _STOPPING_WORDS)
        for job_id in named:
            if (is_stop and not result.is_error) or _has_ended(job_id, named, text):
                del jobs[job_id]
    elif call is not None and not result.is_error and not is_recalling(call.name):
        if classify(call).kind in _READING_KINDS:
            return
        arguments, reader = named_arguments(call), _SPAWNING_TOOLS.get(call.name, "")
        is_asked = any(arguments.get(flag) is True for flag in _ASKING_FLAGS)
        is_asked = is_asked or arguments.get("mode") in _ASKING_MODES or bool(reader)
        if start := _start_in(text, is_asked=is_asked):
            file = _OUTPUT_FILE.search(text)
            output = file[1] if file else (start.reader or reader).replace("{tool}", call.name)
            about = f"{call.name}; output: {output}" if output else call.name
            line = f"{start.job_id}: {_purpose_of(call)} ({about})"
            jobs[start.job_id] = RunningJob(placeholders.quoted(" ".join(line.split())), index)
            if len(jobs) > _MAX_JOBS:
                del jobs[next(iter(jobs))]


def _follow_notes(jobs: dict[str, RunningJob], message: Message, block: Text) -> None:
    """Remove the work that a note of the host reports as ended."""
    if not any(job_id in block.text for job_id in jobs):
        return
    for author, text in passages_of(message, block):
        if author in ("host", "tool"):
            head = text[:_END_CHARS]
            named = _named_in(jobs, head)
            for job_id in named:
                if _has_ended(job_id, named, head):
                    del jobs[job_id]


def _named_in(jobs: Mapping[str, RunningJob], text: str, call: ToolCall | None = None) -> list[str]:
    """Return the IDs of the jobs that a text or the arguments of its call name."""
    given: set[str] = set()
    for key, value in named_arguments(call).items() if call and jobs else ():
        texts = map(str, value if is_list(value) else [value])
        is_id = key.lower().endswith(_ID_KEYS)
        given |= {text for text in texts if is_id or _is_distinct(text)}
    return [
        job_id
        for job_id in jobs
        if job_id in given or (job_id in text and _mention_of(job_id).search(text))
    ]


@lru_cache(maxsize=4 * _MAX_JOBS)
def _mention_of(job_id: str) -> re.Pattern[str]:
    """Return the pattern of a mention: the whole word, after a label if it may occur by chance."""
    label = r"(?<![\w.-])" if _is_distinct(job_id) else r"(?:(?:id|ID|Id)\W{1,4}|[\"'`])"
    return re.compile(rf"{label}{re.escape(job_id)}(?![\w-])")


def _is_distinct(word: str) -> bool:
    """Whether a word cannot equal an ID by chance."""
    return len(word) > 5 and not word.isalpha() and not word.isdecimal()


def _has_ended(job_id: str, named: Iterable[str], text: str) -> bool:
    """Whether `text` says that the job has ended. It may say something else of other jobs."""
    start = max(0, text.find(job_id)) if len(list(named)) > 1 else 0
    later = (text.find(other, start + 1) for other in named if other != job_id)
    part = text[start : min((at for at in later if at > 0), default=len(text))].lower()
    return not any(mark in part for mark in _STILL_RUNS) and _ENDED.search(part) is not None


def _start_in(text: str, *, is_asked: bool = False) -> _Start | None:
    """Return the work that a result starts; None if it names none."""
    lower = text.lower()
    found = ((lower.find(words), tool) for words, tool in _STARTS.items())
    at, reader = next((place for place in found if place[0] >= 0), (-1, ""))
    if at < 0 and not is_asked:
        return None
    match = _ID.search(text, text.rfind("\n", 0, max(0, at)) + 1)
    if match is None:
        return None
    start, stop = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
    line = text[start : stop if stop >= 0 else len(text)]
    return _Start(match[1] or match[2], line, reader)


def _ends_of(text: str) -> str:
    """Return the first and the last lines of a result."""
    head = text[:_END_CHARS].split("\n", _HEAD_LINES)
    if len(text) <= _END_CHARS and len(head) <= _HEAD_LINES:
        return text
    tail = text[max(_END_CHARS, len(text) - _END_CHARS) :] or head[-1]
    return "\n".join((*head[:_HEAD_LINES], *tail.split("\n")[-_TAIL_LINES:]))


def _purpose_of(call: ToolCall) -> str:
    arguments: dict[str, Any] = named_arguments(call)
    texts = (arguments.get(key) for key in _PURPOSE_KEYS)
    purpose = next((text for text in texts if isinstance(text, str) and text.strip()), "")
    return one_line(purpose or classify(call).command or "")

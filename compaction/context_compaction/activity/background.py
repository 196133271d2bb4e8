"""Work in the background: commands, sub-agents and tasks that still run after their call returned.

Their IDs are the only way to their output, so every summary lists them until they end.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from context_compaction.activity.calls import classify, first_text, is_recalling, words_in_name
from context_compaction.messages import model, placeholders
from context_compaction.messages.speakers import passages_of

# Words of results whose work continues. A tool that spawns an agent needs no such words.
_STARTS = re.compile(
    r"\b(?:(?:in|to)(?: the)? background\b|background(?:ed by| task| with)|still running after"
    r"|(?:now|process|script) running|agent launched|monitor started|polling this task)"
    r"|<pty_spawned>",
    re.IGNORECASE,
)
_RUNS = (
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
    r"output(?:[-_]file| is being written to)[:=>\s\"']{1,3}(\S{2,300}?)[.,]?(?=\s|<|$)",
    re.IGNORECASE,
)
_ID_KEYS = ("id", "ids", "target", "targets")
_PURPOSE_KEYS = ("description", "command", "cmd", "prompt", "message", "task", "title")
# Hosts write about a job in the first or last lines of a result.
_HEAD_LINES, _TAIL_LINES, _END_CHARS = 8, 3, 4_000
# Only the newest jobs are followed, because each later text is searched for each job.
_MAX_JOBS = 50


class RunningJob(NamedTuple):
    """Work that still runs at the end of a list.

    Attributes:
        line: Its ID, a colon, its purpose, its tool, and the file with its output.
        message_index: Index of the message that names its ID; None if only an earlier summary does.
    """

    line: str
    message_index: int | None


def running_jobs(messages: model.Messages, carried: Iterable[str] = ()) -> list[RunningJob]:
    """Return the work that still runs at the end of `messages`, oldest first.

    Args:
        messages: The conversation.
        carried: The lines of such work in earlier summaries.
    """
    jobs = {line.partition(":")[0]: RunningJob(line, None) for line in carried}
    calls: dict[str, model.ToolCall] = {}
    for index, message in enumerate(messages):
        for block in message.blocks:
            if isinstance(block, model.ToolCall):
                calls[block.call_id] = block
            elif isinstance(block, model.ToolResult):
                _follow_result(jobs, index, calls.get(block.call_id), block)
            elif message.role != "assistant" and isinstance(block, model.Text) and jobs:
                _follow_notes(jobs, message, block)
    return list(jobs.values())


def started_line(text: str) -> str:
    """Return the line of a result that names work in the background; or ""."""
    return _start_in(_ends_of(text))[1]


def _follow_result(
    jobs: dict[str, RunningJob], index: int, call: model.ToolCall | None, result: model.ToolResult
) -> None:
    """Add the work that a result starts, and remove the work that has ended by it."""
    text = _ends_of(model.result_text(result))
    words = words_in_name(call.name) if call else frozenset[str]()
    if named := _named_in(jobs, text, call):
        is_stopped = not words.isdisjoint(_STOPPING_WORDS) and not result.is_error
        _remove_ended(jobs, named, "stopped" if is_stopped else text)
    elif call is not None and not result.is_error and not is_recalling(call.name):
        use = classify(call)
        if use.kind in _READING_KINDS:
            return
        job_id, _ = _start_in(text, is_sure=words >= {"spawn", "agent"})
        if job_id:
            file = _OUTPUT_FILE.search(text)
            about = f"{call.name}; output: {file[1]}" if file else call.name
            purpose = first_text(model.named_arguments(call), _PURPOSE_KEYS) or use.command or ""
            line = placeholders.quoted(
                " ".join(f"{job_id}: {model.one_line(purpose)} ({about})".split())
            )
            jobs[job_id] = RunningJob(line, index)
            if len(jobs) > _MAX_JOBS:
                del jobs[next(iter(jobs))]


def _follow_notes(jobs: dict[str, RunningJob], message: model.Message, block: model.Text) -> None:
    """Remove the work that a note of the host reports as ended."""
    if not any(job_id in block.text for job_id in jobs):
        return
    for author, text in passages_of(message, block):
        if author in ("host", "tool"):
            head = text[:_END_CHARS]
            _remove_ended(jobs, _named_in(jobs, head), head)


def _named_in(
    jobs: Mapping[str, RunningJob], text: str, call: model.ToolCall | None = None
) -> list[str]:
    """Return the IDs of the jobs that a call has as an argument, or that a text mentions."""
    given: set[str] = set()
    for key, value in model.named_arguments(call).items() if call and jobs else ():
        if key.lower().endswith(_ID_KEYS):
            given.update(map(str, value if model.is_list(value) else [value]))
    return [
        job_id
        for job_id in jobs
        if job_id in given or (job_id in text and _is_mentioned(job_id, text))
    ]


def _is_mentioned(job_id: str, text: str) -> bool:
    """Whether a text has an ID as a whole word, after a label if it may occur by chance."""
    is_distinct = len(job_id) > 5 and not job_id.isalpha() and not job_id.isdecimal()
    before = r"(?<![\w.-])" if is_distinct else r"(?:(?:id|ID|Id)\W{1,4}|[\"'`])"
    return re.search(rf"{before}{re.escape(job_id)}(?![\w-])", text) is not None


def _remove_ended(jobs: dict[str, RunningJob], named: Sequence[str], text: str) -> None:
    """Remove each job that has ended by what `text` says from its ID to the next one."""
    starts = {job_id: text.find(job_id) if len(named) > 1 else 0 for job_id in named}
    for job_id, start in starts.items():
        stop = min((other for other in starts.values() if other > start), default=len(text))
        part = text[max(0, start) : stop].lower()
        if _ENDED.search(part) and not any(map(part.__contains__, _RUNS)):
            del jobs[job_id]


def _start_in(text: str, *, is_sure: bool = False) -> tuple[str, str]:
    """Return the ID of the work that a result starts, and the line of the ID; "" for none."""
    start = _STARTS.search(text)
    if start is None and not is_sure:
        return "", ""
    line_start = text.rfind("\n", 0, start.start()) + 1 if start else 0
    match = _ID.search(text, line_start) or _ID.search(text)
    if match is None:
        return "", ""
    first, stop = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
    return match[1] or match[2], model.one_line(text[first : stop if stop >= 0 else len(text)])


def _ends_of(text: str) -> str:
    """Return the first and the last lines of a result."""
    head = text[:_END_CHARS].split("\n", _HEAD_LINES)
    if len(text) <= _END_CHARS and len(head) <= _HEAD_LINES:
        return text
    tail = text[max(_END_CHARS, len(text) - _END_CHARS) :] or head[-1]
    return "\n".join((*head[:_HEAD_LINES], *tail.split("\n")[-_TAIL_LINES:]))

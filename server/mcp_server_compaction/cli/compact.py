"""`compact FILE`: a conversation in a file made to fit, and a table of what went where."""

import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import anyio
from anyio import to_thread
from context_compaction import formats
from context_compaction.archive.local.archive import open_archive
from context_compaction.errors import SettingsError
from context_compaction.formats.convert import convert, split_system
from context_compaction.messages.edits import Edit
from context_compaction.messages.model import JsonObject, Messages
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest, Mode
from context_compaction.result import CompactResult
from context_compaction.summarizers.llm.model import SummaryModel
from context_compaction.tokens.counter import counter_for

from mcp_server_compaction.cli.terminal import say
from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.compaction_call import (
    Input,
    input_of_file,
    irreducible_lines,
    written_by,
)
from mcp_server_compaction.protocol.writers import model_for

# Below this a compaction is over before a progress bar could be read.
_LONG_INPUT_BYTES = 2_000_000
_POINTERS_SHOWN = 3

Report: TypeAlias = Callable[[float, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class CompactFile:
    """What the command line asks for; see `cli.compact` for each option."""

    file: Path
    window: int | None
    target: str | None
    model: str | None
    policy: str | None
    mode: Mode
    session: str | None
    instructions: str | None
    pins: tuple[str, ...]
    format_name: str | None
    to_format: str | None
    as_json: bool
    out: Path | None


def run_compact(job: CompactFile, config: Config) -> None:
    """Compact, write the messages if asked to, and print the table or the receipt.

    Raises:
        CompactionError: The file holds no conversation, an option is wrong, or the archive fails.
    """
    _check_out(job)
    given, result = anyio.run(_compact, job, config)
    if job.out is not None:
        _write_messages(job.out, result.messages)
    if job.as_json:
        say(json.dumps(_report(given, result), ensure_ascii=True, indent=1))
    else:
        _print_report(given, result, job)


async def _compact(job: CompactFile, config: Config) -> tuple[Input, CompactResult]:
    data = await anyio.Path(job.file).read_bytes()
    given = await input_of_file(data, job.file.name)
    if job.format_name:
        given = replace(given, format=job.format_name)
    request = await to_thread.run_sync(partial(_request, job, given, config))
    if job.to_format:
        given, request = await to_thread.run_sync(
            partial(_converted, given, request, job.to_format)
        )
    async with (
        open_archive(config.archive_folder, redaction=config.redaction) as archive,
        _progress(len(data)) as report_progress,
    ):
        result = await compact(
            given.payload,
            request,
            archive=archive,
            read_file=config.roots.reader(given.folder),
            model=_model(config),
            report_progress=report_progress,
        )
    return given, result


def _request(job: CompactFile, given: Input, config: Config) -> CompactRequest:
    request = CompactRequest(
        mode=job.mode,
        format=given.format,
        session_id=job.session or given.session_id,
        model=job.model or given.model or config.model,
        context_window=job.window,
        system=given.system,
        tools=given.tools,
        policy=job.policy or config.policy,
        pinned=job.pins,
        instructions=job.instructions or "",
    )
    return replace(request, target_tokens=_target_tokens(job.target, given, request.model))


def _model(config: Config) -> SummaryModel | None:
    """The model that the command line can ask: there is no host here, and no client."""
    writer = config.summaries.writer
    return None if writer in {"host", "sampling"} else model_for(writer, config, None)


_MOST_DIGITS = 12  # far more tokens than any window has


def _target_tokens(target: str | None, given: Input, model: str | None) -> int | None:
    """The target in tokens; a percentage is of what the conversation has."""
    if target is None:
        return None
    number = target.removesuffix("%").replace("_", "").replace(",", "")
    if not number.isdecimal() or len(number) > _MOST_DIGITS or int(number) == 0:
        raise SettingsError(f"--target is {target!r}. Give tokens as 50000, or a share as 25%.")
    if not target.endswith("%"):
        return int(number)
    count = counter_for(model)
    overhead = count.overhead(system=given.system, tools=given.tools)
    total = count.messages(formats.parse(given.payload, format=given.format)) + overhead
    return max(1, total * int(number) // 100)


def _converted(
    given: Input, request: CompactRequest, to_format: str
) -> tuple[Input, CompactRequest]:
    """The conversation in another format, archived as a session of its own."""
    parsed: Messages = formats.parse(given.payload, format=given.format)
    system = given.system
    if to_format in {"anthropic", "gemini"}:  # the others have the system prompt in the list
        in_list, parsed = split_system(parsed)
        system = "\n\n".join(text for text in (system, in_list) if text) or None
    messages = convert(parsed, to=to_format, origin=given.format)
    payload = formats.render(messages, format=to_format)
    session_id = f"{request.session_id}.{to_format}" if request.session_id else None
    return (
        replace(given, payload=payload, format=to_format, system=system),
        replace(request, format=to_format, session_id=session_id, system=system),
    )


@asynccontextmanager
async def _progress(size_bytes: int) -> AsyncGenerator[Report | None]:
    """Reports to a progress bar on standard error, where somebody watches a long run."""
    if size_bytes < _LONG_INPUT_BYTES or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading", total=1.0)

        async def report(fraction: float, step: str) -> None:
            progress.update(task, completed=fraction, description=step)

        yield report


def _check_out(job: CompactFile) -> None:
    if job.out is None:
        return
    if job.out.suffix not in {".json", ".jsonl"}:
        raise SettingsError(f"--out is {job.out}. Name a file that ends in .json or .jsonl.")
    if job.out.exists() and job.out.samefile(job.file):
        raise SettingsError("--out is the input file, which is never changed. Name another file.")
    if not job.out.absolute().parent.is_dir():
        raise SettingsError(f"The folder of --out {job.out} does not exist. Make it first.")


def _write_messages(out: Path, messages: Sequence[JsonObject]) -> None:
    """Write the list in whole or not at all: beside the place first, then by renaming."""
    if out.suffix == ".jsonl":
        text = "".join(json.dumps(message) + "\n" for message in messages)
    else:
        text = json.dumps(messages, indent=1) + "\n"
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=out.absolute().parent, prefix=out.name, delete=False
        ) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(out)
    except OSError as error:
        raise SettingsError(
            f"{out} cannot be written: {error.strerror}. Choose another place for --out."
        ) from error


def _report(given: Input, result: CompactResult) -> JsonObject:
    """The receipt for `--json`; a result that changed nothing has the same fields."""
    return {
        **result.receipt,
        "session_id": result.session_id,
        "status": result.status,
        "changed": result.changed,
        "fits": result.fits,
        "message_count": {"before": len(given.payload), "after": len(result.messages)},
        "notes": list(given.notes),
    }


def _print_report(given: Input, result: CompactResult, job: CompactFile) -> None:
    tokens = result.tokens
    say(
        f"Session {result.session_id} ({result.format}): {result.status}. "
        f"{len(given.payload)} -> {len(result.messages)} messages, "
        f"{tokens.before:,} -> {tokens.after:,} tokens "
        f"(at most {tokens.upper:,}; counted by {tokens.method})."
    )
    say(f"Compaction starts at {tokens.trigger:,} and aims for {tokens.target:,} tokens.")
    if result.layers:
        _print_layers(result)
    if not result.fits:
        say(_does_not_fit(result))
    for line in [*given.notes, *result.warnings]:
        say(f"Note: {line}")
    if writer := written_by(result.receipt):
        say(f"Summary written by: {writer}.")
    if result.receipt.get("model"):
        say(_model_line(result.receipt["model"]))
    if result.receipt.get("losses"):
        say(_losses_line(result.receipt["losses"]))
    _print_files(result)
    if any(edit.pointers for edit in result.edits):
        say("Read what left: mcp-server-compaction read POINTER")
    if job.out is not None:
        say(f"Messages written to {job.out}")


def _print_files(result: CompactResult) -> None:
    if result.restored:
        say(f"Put back: {', '.join(result.restored)}")
    if named := [edit.note for edit in result.edits if edit.action == "named"]:
        say(f"Named only, their text was not put back: {', '.join(named)}")


def _print_layers(result: CompactResult) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Layers")
    for heading in ("layer", "tokens before", "after", "saved", "edits"):
        table.add_column(heading, justify="left" if heading == "layer" else "right")
    table.add_column("what went where", overflow="fold")
    for layer in result.layers:
        edits = [edit for edit in result.edits if edit.layer == layer.name]
        table.add_row(
            layer.name,
            f"{layer.tokens_before:,}",
            f"{layer.tokens_after:,}",
            f"{layer.tokens_before - layer.tokens_after:,}",
            str(layer.edit_count),
            _where(edits) if edits or not layer.edit_count else "all of it replaced again below",
        )
    # A pipe has no width of its own: the table must not be squeezed into 80 columns.
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def _where(edits: Sequence[Edit]) -> str:
    """What a layer did, and the first pointers to the originals."""
    if not edits:
        return "-"
    done = Counter(f"{edit.action} {edit.tool_name or ''}".strip() for edit in edits)
    counted = ", ".join(f"{what} x{n}" if n > 1 else what for what, n in done.most_common(4))
    others = f", {len(done) - 4} more" if len(done) > 4 else ""
    pointers = list(dict.fromkeys(pointer for edit in edits for pointer in edit.pointers))
    shown = " ".join(pointers[:_POINTERS_SHOWN])
    left = len(pointers) - _POINTERS_SHOWN
    more = f" and {left} more" if left > 0 else ""
    return f"{counted}{others}" + (f" -> {shown}{more}" if pointers else "")


def _model_line(report: JsonObject) -> str:
    """What a model was asked and what it took."""
    if not report["requested"]:
        return f"{report['name']} was not asked."
    cost = f", ${report['cost_dollars']:.4f} by list price" if report["cost_dollars"] else ""
    return (
        f"{report['name']} answered {report['requests']} requests with "
        f"{report['input_tokens']:,} tokens in and {report['output_tokens']:,} out{cost}."
    )


def _losses_line(losses: JsonObject) -> str:
    """How many names stand in the context no more, the first ones, and how to find any."""
    kinds: dict[str, JsonObject] = losses["kinds"]
    if not kinds:
        return "Every name of what left stands in the context still."
    counted = ", ".join(f"{kind} x{found['total']}" for kind, found in kinds.items())
    first = ", ".join(found["shown"][0] for found in kinds.values() if found["shown"])
    shown = f", as {first}" if first else ""
    return f"No longer in the context: {counted}{shown}. mcp-server-compaction search finds each."


def _does_not_fit(result: CompactResult) -> str:
    tokens = result.tokens
    pieces = "\n".join(f"  {line}" for line in irreducible_lines(result))
    return (
        f"Does not fit: at most {tokens.upper:,} tokens against a limit of {tokens.limit:,}. "
        "What is left cannot be made smaller:\n" + (pieces or "  (nothing was tried)")
    )

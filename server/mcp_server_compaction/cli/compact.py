"""`compact SESSION`: a conversation made to fit, and a table of what went where."""

import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio
from anyio import to_thread
from context_compaction import formats
from context_compaction.archive import Archive
from context_compaction.archive.addresses import shown_address
from context_compaction.archive.opening import open_archive
from context_compaction.errors import NotFoundError, SettingsError
from context_compaction.messages.edits import Edit
from context_compaction.messages.model import JsonObject
from context_compaction.pipeline.compact import compact
from context_compaction.pipeline.losses import with_losses
from context_compaction.request import CompactRequest, Mode
from context_compaction.result import CompactResult
from context_compaction.summarizers.llm.model import SummaryModel
from context_compaction.tokens.counter import counter_for
from context_compaction.tokens.models import profile_for

from mcp_server_compaction.cli.short_names import short_pointer, short_session, whole_session
from mcp_server_compaction.cli.terminal import awaited, progress, say
from mcp_server_compaction.config import Config, is_file
from mcp_server_compaction.hosts.catalog import this_user
from mcp_server_compaction.hosts.resume import RESUME_FORMATS, Resumable
from mcp_server_compaction.hosts.session_places import CURRENT, current_transcript
from mcp_server_compaction.protocol.compaction_call import (
    Input,
    converted,
    input_of_file,
    irreducible_lines,
    resumable_of,
    written_by,
)
from mcp_server_compaction.protocol.writers import model_for

STANDARD_INPUT = Path("-")
_POINTERS_SHOWN = 3
# Who asks for a session to go on with wants it small now, whatever the window: the share that the
# default policy leaves.
_RESUMED_TARGET = "30%"


@dataclass(frozen=True, slots=True)
class CompactJob:
    """What the command line asks for; see `cli.compact` for each option."""

    source: str
    window: int | None
    target: str | None
    model: str | None
    policy: str | None
    mode: Mode | None
    session: str | None
    instructions: str | None
    pins: tuple[str, ...]
    format_name: str | None
    to_format: str | None
    as_json: bool
    out: Path | None
    resume: str | None


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What was compacted, what came of it, and the session that was written of it."""

    given: Input
    result: CompactResult
    resumable: Resumable | None


def run_compact(job: CompactJob, config: Config) -> None:
    """Compact, write the messages if asked to, and print the table or the receipt.

    Raises:
        CompactionError: There is no such conversation, an option is wrong, or the archive fails.
    """
    _check(job)
    outcome = anyio.run(_compact, job, config)
    if job.out is not None:
        _write_messages(job.out, outcome.result.messages)
    if job.as_json:
        say(json.dumps(_report(outcome, job, config), ensure_ascii=True, indent=1))
    else:
        _print_report(outcome, job, config)


async def _compact(job: CompactJob, config: Config) -> _Outcome:
    with progress("Compacting") as tell:
        async with open_archive(config.archive, redaction=config.redaction) as archive:
            given = await _source(job.source, archive)
            if job.format_name:
                given = replace(given, format=job.format_name)
            request = await to_thread.run_sync(partial(_request, job, given, config))
            to_format = job.to_format or RESUME_FORMATS.get(job.resume or "")
            if to_format is not None and to_format != given.format:
                convert_to = partial(converted, given, request, to_format)
                given, request = await to_thread.run_sync(convert_to)
            result = await compact(
                given.payload,
                request,
                archive=archive,
                read_file=config.roots.reader(given.folder),
                model=_model(config),
                report_progress=awaited(tell),
            )
            result = await with_losses(result, archive)
            resumable = None
            if job.resume and result.changed and job.mode != "plan":
                resumable = await resumable_of(result, job.resume, given, archive)
    return _Outcome(given, result, resumable)


async def read_input(file: Path) -> Input:
    """The conversation in a file, or in standard input where `file` is `-`.

    Raises:
        CompactionError: It holds no conversation.
    """
    if file == STANDARD_INPUT:
        return await input_of_file(await to_thread.run_sync(sys.stdin.buffer.read), "stdin")
    return await input_of_file(await anyio.Path(file).read_bytes(), file.name)


async def _source(named: str, archive: Archive) -> Input:
    """The conversation that the command line names.

    Raises:
        CompactionError: There is none of that name.
    """
    file = Path(named)
    if file == STANDARD_INPUT:
        return await read_input(file)
    if named == CURRENT and not await anyio.Path(file).exists():
        file = await to_thread.run_sync(current_transcript, this_user())
    if await to_thread.run_sync(is_file, file):
        return replace(await read_input(file), path=Path(await anyio.Path(file).absolute()))
    try:
        session_id = await whole_session(archive, named)
    except (NotFoundError, SettingsError) as error:
        raise NotFoundError(
            f"{named} {await to_thread.run_sync(_what_it_is, file)}. Name a session file, an id "
            f"from mcp-server-compaction sessions, {CURRENT}, or - for standard input."
        ) from error
    format_name, context = await archive.context(session_id)
    return Input(context, format=format_name, session_id=session_id)


def _what_it_is(path: Path) -> str:
    if path.is_dir():
        return "is a folder"
    return "is no regular file" if path.exists() else "is no file and no archived session"


def _request(job: CompactJob, given: Input, config: Config) -> CompactRequest:
    request = CompactRequest(
        mode=job.mode or "auto",
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
    is_left_open = job.resume is not None and job.mode is None
    target = job.target or (_RESUMED_TARGET if is_left_open else None)
    return replace(request, target_tokens=_target_tokens(target, given, request.model))


def _model(config: Config) -> SummaryModel | None:
    """The model that the command line can ask: there is no host here, and no client."""
    writer = config.summaries.writer
    return None if writer in {"host", "sampling"} else model_for(writer, config, None)


_MOST_DIGITS = 12  # far more tokens than any window has


def _target_tokens(target: str | None, given: Input, model: str | None) -> int | None:
    """The target in tokens; a percentage is of the messages, beside which the rest stays."""
    if target is None:
        return None
    number = target.removesuffix("%").replace("_", "").replace(",", "")
    if not number.isdecimal() or len(number) > _MOST_DIGITS or int(number) == 0:
        raise SettingsError(f"--target is {target!r}. Give tokens as 50000, or a share as 25%.")
    if not target.endswith("%"):
        return int(number)
    count = counter_for(model)
    overhead = count.overhead(system=given.system, tools=given.tools)
    total = count.messages(formats.parse(given.payload, format=given.format))
    return max(1, overhead + total * int(number) // 100)


def _check(job: CompactJob) -> None:
    """Refuse what cannot be meant, before anything is read."""
    for name in (job.format_name, job.to_format):
        if name and name not in formats.FORMATS:
            known = ", ".join(formats.FORMATS)
            raise SettingsError(f"There is no format {name!r}. Choose one of: {known}.")
    if job.out is None:
        return
    if job.out.suffix not in {".json", ".jsonl"}:
        raise SettingsError(f"--out is {job.out}. Name a file that ends in .json or .jsonl.")
    source = Path(job.source)
    if is_file(job.out) and is_file(source) and job.out.samefile(source):
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


def _report(outcome: _Outcome, job: CompactJob, config: Config) -> JsonObject:
    """The receipt for `--json`; a result that changed nothing has the same fields."""
    given, result, resumable = outcome.given, outcome.result, outcome.resumable
    return {
        **result.receipt,
        "session_id": result.session_id,
        "status": result.status,
        "changed": result.changed,
        "fits": result.fits,
        "message_count": {"before": len(given.payload), "after": len(result.messages)},
        "warnings": list(result.warnings),
        "notes": _notes(outcome, job, config),
        "resume": resumable
        and {
            "path": str(resumable.path),
            "session_id": resumable.session_id,
            "command": resumable.command,
        },
    }


def _print_report(outcome: _Outcome, job: CompactJob, config: Config) -> None:
    given, result = outcome.given, outcome.result
    tokens = result.tokens
    session = short_session(result.session_id)
    is_plan = job.mode == "plan"  # which writes nothing
    say(_headline(given, result, is_plan=is_plan))
    if not is_plan:
        address = config.archive_address
        place = config.archive_folder if address is None else shown_address(address)
        say(f"Kept whole: session {session} in {place}")
        say(
            f'Look: mcp-server-compaction search "WORDS", or read {session}/0-9'
            + ("" if job.out else "; --out FILE writes the messages")
        )
    say()
    say(
        f"Compaction starts at {tokens.trigger:,} and aims for {tokens.target:,} tokens; the "
        f"result has at most {tokens.upper:,}."
    )
    say(f"Format {result.format}, counted by {tokens.method}.")
    if result.layers:
        _print_layers(result, is_plan=is_plan)
    if not result.fits:
        say(_does_not_fit(result))
    for line in [*_notes(outcome, job, config), *result.warnings]:
        say(f"Note: {line}")
    if writer := written_by(result.receipt):
        say(f"Summary written by: {writer}.")
    if result.receipt.get("model"):
        say(_model_line(result.receipt["model"]))
    if result.receipt.get("losses"):
        say(_losses_line(result.receipt["losses"]))
    _print_files(result)
    if job.out is not None:
        say(f"Messages written to {job.out}")
    if job.resume is not None:
        say(_resume_line(outcome, is_plan=is_plan))


def _notes(outcome: _Outcome, job: CompactJob, config: Config) -> list[str]:
    """What was noticed of the input and of what was asked, beside the result's own warnings."""
    given = outcome.given
    named = job.model or (config.model if given.model is None else None)
    return [*given.notes, *_unknown_model(named), *_unused_wishes(job, outcome.result)]


def _headline(given: Input, result: CompactResult, *, is_plan: bool) -> str:
    """What came of it in one line, and of what: an earlier call may have compacted it before."""
    before, after = len(given.payload), len(result.messages)
    tokens = f"{result.tokens.before:,} -> {result.tokens.after:,} tokens"
    status = result.status.capitalize().replace("_", " ")
    done = f"{status}: {before:,} -> {after:,} messages, {tokens}."
    if is_plan:
        done = f"Planned, nothing is written: {before:,} messages, {tokens}."
    if earlier := result.receipt.get("recognised"):
        if result.tokens.before == result.tokens.after and not is_plan:
            done = f"As before: {before:,} -> {after:,} messages, {result.tokens.after:,} tokens."
        done += (
            f"\nAn earlier call brought the first {earlier['message_count']:,} of them down to "
            f"{earlier['context_count']:,}; this one began with what that left."
        )
    return done


def _resume_line(outcome: _Outcome, *, is_plan: bool) -> str:
    resumable = outcome.resumable
    if is_plan:
        return "No session was written: this was a plan. Leave out --mode plan to have it."
    if resumable is None:
        return "No session was written, since nothing was compacted: go on with this one."
    return (
        f"The session stands compacted in {resumable.path}, the original as it was.\n"
        f"Go on with it: {resumable.command}"
    )


def _unknown_model(model: str | None) -> list[str]:
    """A warning where a model was named that is not known."""
    if model is None or profile_for(model).name != profile_for(None).name:
        return []
    profile = profile_for(None)
    return [
        f"The model {model!r} is not known: a window of {profile.context_window:,} tokens is "
        "assumed, and more tokens a word than most have. Name the window with --window."
    ]


def _unused_wishes(job: CompactJob, result: CompactResult) -> list[str]:
    """A word on `--pin` and `--instructions` where no summary was written that they could steer."""
    given = {"--pin": job.pins, "--instructions": job.instructions}
    named = " and ".join(option for option, value in given.items() if value)
    if not named or result.receipt.get("writer"):
        return []
    return [f"No summary was needed, so {named} changed nothing. A smaller --target asks for one."]


def _print_files(result: CompactResult) -> None:
    if result.restored:
        say(f"Put back: {', '.join(result.restored)}")
    if named := [edit.note for edit in result.edits if edit.action == "named"]:
        say(f"Named only, their text was not put back: {', '.join(named)}")


def _print_layers(result: CompactResult, *, is_plan: bool) -> None:
    """A line for each layer, and below it what went where: nothing is wider than 80 columns."""
    say()
    say(f"{'layer':<13}{'before':>10}{'after':>10}{'saved':>10}  what was done")
    for layer in result.layers:
        edits = [edit for edit in result.edits if edit.layer == layer.name]
        saved = layer.tokens_before - layer.tokens_after
        done = _done(edits) if edits or not layer.edit_count else "all replaced again below"
        say(
            f"{layer.name:<13}{layer.tokens_before:>10,}{layer.tokens_after:>10,}{saved:>10,}"
            f"  {done}"
        )
        if is_plan:
            continue  # what its pointers name was not written
        pointers = list(dict.fromkeys(short_pointer(p) for edit in edits for p in edit.pointers))
        for pointer in pointers[:_POINTERS_SHOWN]:
            say(f"    {pointer}")
        if len(pointers) > _POINTERS_SHOWN:
            say(f"    and {len(pointers) - _POINTERS_SHOWN} more (--json names all)")
    if not is_plan and any(edit.pointers for edit in result.edits):
        say("Each of these is read by: mcp-server-compaction read POINTER")
    say()


def _done(edits: Sequence[Edit]) -> str:
    """What a layer did, in the fewest words."""
    done = Counter(f"{edit.action} {edit.tool_name or ''}".strip() for edit in edits)
    counted = [f"{what} x{n}" if n > 1 else what for what, n in done.most_common(2)]
    return ", ".join(counted) + (f", {len(done) - 2} more" if len(done) > 2 else "")


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

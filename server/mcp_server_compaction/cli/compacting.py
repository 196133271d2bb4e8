"""`compact SESSION`: a conversation made to fit, and a table of what went where; `policies`."""

import json
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import click
from anyio import to_thread
from context_compaction import (
    FORMATS,
    POLICIES,
    Archive,
    CompactRequest,
    CompactResult,
    Edit,
    JsonObject,
    Mode,
    NotFoundError,
    SettingsError,
    counter_for,
    open_archive,
    parse,
    profile_for,
    put_file,
    shown_address,
    with_dropped_names,
)
from context_compaction import compact as compact_messages

from mcp_server_compaction.cli.terminal import awaited, config_of, json_option, progress, say
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
from mcp_server_compaction.protocol.resource_contents import own_constants, policies_document
from mcp_server_compaction.protocol.writers import model_for
from mcp_server_compaction.reading.text_source import find_session, short_pointer, short_session

_POINTERS_SHOWN = 3
# Who resumes a session wants it small now, whatever the window: the default policy leaves as much.
_RESUMED_TARGET = "30%"


@click.command()
@json_option
def policies(as_json: bool) -> None:
    """List the policies with their layers, constants and sources."""
    if as_json:
        say(json.dumps(policies_document(), indent=1))
        return
    for policy in POLICIES.values():
        say(f"{policy.name} ({policy.source})")
        lines = [policy.description, "Layers: " + " > ".join(policy.layers)]
        if constants := own_constants(policy):
            lines.append("Constants: " + ", ".join(f"{k}={v}" for k, v in constants.items()))
        lines += [f"Differs: {difference}" for difference in policy.differences]
        for line in lines:
            say(textwrap.indent(textwrap.fill(line, 98), "  "))
        say()


@dataclass(frozen=True, slots=True)
class _Job:
    """The options of `compact`."""

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
    """What was compacted, the result, and the session that was written of it."""

    given: Input
    result: CompactResult
    resumable: Resumable | None


@click.command()
@click.argument("source", metavar="SESSION")
@click.option(
    "--resume",
    type=click.Choice(tuple(RESUME_FORMATS)),
    help="Write a session that this host goes on with, beside the original.",
)
@click.option("--window", type=click.IntRange(1), metavar="N", help="Context window in tokens.")
@click.option("--target", metavar="N|P%", help="Bring it down to N tokens, or its messages to P%.")
@click.option("--model", metavar="M", help="Model, for its window and tokenizer.")
@click.option(
    "--policy", metavar="P", type=click.Choice(tuple(POLICIES)), help="Name of the policy."
)
@click.option(
    "--mode",
    type=click.Choice(["auto", "plan", "micro", "full", "reactive", "record"]),
    help="auto if left out; then --resume aims for 30%.",
)
@click.option("--session", metavar="S", help="Name of the session in the archive.")
@click.option("--instructions", metavar="T", help="What the summary should keep.")
@click.option("--pin", "pins", metavar="T", multiple=True, help="Text kept word for word.")
@click.option(
    "--format",
    "format_name",
    metavar="F",
    type=click.Choice(tuple(FORMATS)),
    help="Format of the messages in FILE.",
)
@click.option(
    "--to",
    "to_format",
    metavar="FORMAT",
    type=click.Choice(tuple(FORMATS)),
    help="Convert to this format first.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the receipt as JSON.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help=".json or .jsonl")
@click.pass_context
def compact(context: click.Context, /, **options: Any) -> None:
    """Compact a conversation and show what went where.

    SESSION is a file (- is standard input), an archived session or the beginning of its id, or
    "current": the newest session of a host in this folder.
    """
    job = _Job(**options)
    config = config_of(context)
    _check(job)
    outcome = anyio.run(_compact, job, config)
    if job.out is not None:
        _write_messages(job.out, outcome.result.messages)
    if job.as_json:
        say(json.dumps(_report(outcome, job, config), ensure_ascii=True, indent=1))
    else:
        _print_report(outcome, job, config)
        if job.out is not None:
            say(f"Messages written to {job.out}")


async def _compact(job: _Job, config: Config) -> _Outcome:
    with progress("Compacting") as report:
        async with open_archive(config.archive, redaction=config.redaction) as archive:
            given = await _source(job.source, archive)
            if job.format_name:
                given = replace(given, format=job.format_name)
            request = await to_thread.run_sync(partial(_request, job, given, config))
            to_format = job.to_format or RESUME_FORMATS.get(job.resume or "")
            if to_format is not None and to_format != given.format:
                convert_to = partial(converted, given, request, to_format)
                given, request = await to_thread.run_sync(convert_to)
            writer = config.summaries.writer
            # There is no host here, and no client.
            model = None if writer in {"host", "sampling"} else model_for(writer, config, None)
            result = await compact_messages(
                given.payload,
                request,
                archive=archive,
                read_file=config.roots.reader(given.folder),
                model=model,
                report_progress=awaited(report),
            )
            result = await with_dropped_names(result, archive)
            resumable = None
            if job.resume and result.changed and job.mode != "plan":
                resumable = await resumable_of(result, job.resume, given, archive)
    return _Outcome(given, result, resumable)


async def read_input(file: str) -> Input:
    """The conversation in a file, or in standard input where `file` is `-`.

    Raises:
        CompactionError: It holds no conversation.
    """
    if file == "-":
        return await input_of_file(await to_thread.run_sync(sys.stdin.buffer.read), "stdin")
    return await input_of_file(await anyio.Path(file).read_bytes(), Path(file).name)


async def _source(named: str, archive: Archive) -> Input:
    """The conversation that the command line names.

    Raises:
        CompactionError: There is none of that name.
    """
    if named == "-":
        return await read_input(named)
    file = Path(named)
    if named == CURRENT and not await anyio.Path(file).exists():
        file = await to_thread.run_sync(current_transcript, this_user())
    if await to_thread.run_sync(is_file, file):
        return await read_input(str(file))
    try:
        session_id = await find_session(archive, named)
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


def _request(job: _Job, given: Input, config: Config) -> CompactRequest:
    model = job.model or given.model or config.model
    is_left_open = job.resume is not None and job.mode is None
    target = job.target or (_RESUMED_TARGET if is_left_open else None)
    return CompactRequest(
        mode=job.mode or "auto",
        format=given.format,
        session_id=job.session or given.session_id,
        model=model,
        context_window=job.window,
        target_tokens=_target_tokens(target, given, model),
        system=given.system,
        tools=given.tools,
        policy=job.policy or config.policy,
        pinned=job.pins,
        instructions=job.instructions or "",
    )


def _target_tokens(target: str | None, given: Input, model: str | None) -> int | None:
    """The target in tokens; a percentage is of the messages, beside which the rest stays."""
    if target is None:
        return None
    number = target.removesuffix("%").replace("_", "").replace(",", "")
    if not number.isdecimal() or len(number) > 12 or int(number) == 0:
        raise SettingsError(f"--target is {target!r}. Give tokens as 50000, or a share as 25%.")
    if not target.endswith("%"):
        return int(number)
    count = counter_for(model)
    overhead = count.overhead(system=given.system, tools=given.tools)
    total = count.messages(parse(given.payload, format=given.format))
    return max(1, overhead + total * int(number) // 100)


def _check(job: _Job) -> None:
    """Refuse what cannot be meant, before anything is read."""
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
    if out.suffix == ".jsonl":
        text = "".join(json.dumps(message) + "\n" for message in messages)
    else:
        text = json.dumps(messages, indent=1) + "\n"
    try:
        put_file(out.absolute(), text.encode("ascii"))
    except OSError as error:
        raise SettingsError(
            f"{out} cannot be written: {error.strerror}. Choose another place for --out."
        ) from error


def _report(outcome: _Outcome, job: _Job, config: Config) -> JsonObject:
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
        "resume": resumable and asdict(resumable) | {"path": str(resumable.path)},
    }


def _print_report(outcome: _Outcome, job: _Job, config: Config) -> None:
    result = outcome.result
    tokens = result.tokens
    session = short_session(result.session_id)
    is_plan = job.mode == "plan"  # which writes nothing
    say(_headline(outcome.given, result, is_plan=is_plan))
    if not is_plan:
        address = config.archive_address
        place = config.archive_folder if address is None else shown_address(address)
        say(f"Kept whole: session {session} in {place}")
        out = "" if job.out else "; --out FILE writes the messages"
        say(f'Look: mcp-server-compaction search "WORDS", or read {session}/0-9{out}')
    say()
    say(
        f"Compaction starts at {tokens.trigger:,} and aims for {tokens.target:,} tokens; the "
        f"result has at most {tokens.upper:,}."
    )
    say(f"Format {result.format}, counted by {tokens.method}.")
    if result.layers:
        _print_layers(result, is_plan=is_plan)
    if not result.fits:
        say(
            f"Does not fit: at most {tokens.upper:,} tokens against a limit of {tokens.limit:,}. "
            "What is left cannot be made smaller:"
        )
        for line in irreducible_lines(result):
            say(f"  {line}")
    for line in [*_notes(outcome, job, config), *result.warnings]:
        say(f"Note: {line}")
    if writer := written_by(result.receipt):
        say(f"Summary written by: {writer}.")
    if losses := result.receipt.get("losses", {}).get("kinds"):
        counted = ", ".join(f"{kind} x{found['total']}" for kind, found in losses.items())
        say(f"No longer in the context: {counted}. mcp-server-compaction search finds each.")
    if result.restored:
        say(f"Put back: {', '.join(result.restored)}")
    if job.resume is not None:
        say(_resume_line(outcome.resumable, is_plan=is_plan))


def _notes(outcome: _Outcome, job: _Job, config: Config) -> list[str]:
    """What was noticed of the input and of what was asked, beside the result's own warnings."""
    notes = list(outcome.given.notes)
    model = job.model or (config.model if outcome.given.model is None else None)
    unknown = profile_for(None)
    if model is not None and profile_for(model).name == unknown.name:
        notes.append(
            f"The model {model!r} is not known: a window of {unknown.context_window:,} tokens is "
            "assumed, and more tokens a word than most have. Name the window with --window."
        )
    given = {"--pin": job.pins, "--instructions": job.instructions}
    named = " and ".join(option for option, value in given.items() if value)
    if named and not outcome.result.receipt.get("writer"):
        notes.append(
            f"No summary was needed, so {named} changed nothing. A smaller --target asks for one."
        )
    return notes


def _headline(given: Input, result: CompactResult, *, is_plan: bool) -> str:
    """The result in one line, and what an earlier call had compacted before."""
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


def _resume_line(resumable: Resumable | None, *, is_plan: bool) -> str:
    if is_plan:
        return "No session was written: this was a plan. Leave out --mode plan to have it."
    if resumable is None:
        return "No session was written, since nothing was compacted: go on with this one."
    return (
        f"The compacted session is in {resumable.path}; the original is unchanged.\n"
        f"Go on with it: {resumable.command}"
    )


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

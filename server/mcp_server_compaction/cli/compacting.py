"""The commands `compact` and `undo`."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_args

import anyio
import click
from anyio import to_thread
from context_compaction import (
    FORMATS,
    POLICIES,
    Archive,
    CompactRequest,
    CompactResult,
    Detail,
    Edit,
    JsonObject,
    Mode,
    NotFoundError,
    SettingsError,
    open_archive,
    profile_for,
    put_file,
    shown_address,
    with_dropped_names,
)

from mcp_server_compaction.cli.terminal import (
    async_report,
    config_of,
    grouped,
    progress,
    say,
    say_exactly,
)
from mcp_server_compaction.config import Config, NewFile, Positive, is_file, options_of
from mcp_server_compaction.hosts import session_files
from mcp_server_compaction.hosts.catalog import this_user
from mcp_server_compaction.program import own_command
from mcp_server_compaction.protocol.compaction_call import (
    Input,
    archived_input,
    compacted,
    input_of_file,
    irreducible_lines,
    model_for,
    resumable_of,
    what_was_undone,
    written_by,
)
from mcp_server_compaction.reading.text_source import (
    find_session,
    open_source,
    short_pointer,
    short_session,
)
from mcp_server_compaction.viewer.formatting import plural

_MAX_POINTERS = 3  # for each layer
# A resumed session should be small, but the default policy may leave a large context.
_RESUME_TARGET = "30%"

# Names of the work of modes that do not compact.
_PROGRESS = {"plan": "Planning", "record": "Archiving", "undo": "Undoing"}
_MODES = [mode for mode in get_args(Mode) if mode != "undo"]
HostName: TypeAlias = Annotated[str, click.Choice(tuple(session_files.RESUME_FORMATS))]
FormatName: TypeAlias = Annotated[str, click.Choice(tuple(FORMATS))]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """The options of `compact`, and its argument.

    Options:
        resume: Write a new session that this host can continue (default: none).
        window (N): Fit a context window of N tokens (default: of the model).
        target (N|P%): Shrink to N tokens, or the messages to P% (default: set by the policy; with
            --resume 30%).
        detail: Leave a tenth, a quarter or half of the tokens: of --range, of all messages with
            --mode full, else of the trigger (default: set by --target or the policy).
        range (A-B): Summarize only messages A to B, counted from 0, and keep all others (default:
            what must shrink).
        model (M): Use window and tokenizer of this model (default: the one in the file).
        policy (P): Apply this policy (default: MCP_COMPACTION_POLICY, or the policy default).
        mode: auto: compact if necessary (default). plan: only report it. micro: clear tool results.
            full: summarize now. reactive: shrink a rejected prompt. record: only archive.
        session (S): Archive under this session ID (default: derived from the file).
        instructions (T): Instruct the writer of the summary (default: none).
        pins (T): Keep this text verbatim in all summaries; repeatable (default: none).
        format (F): Read the messages in this format (default: detected).
        to (FORMAT): Convert the messages to this format first (default: not converted).
        as_json: Print the receipt as JSON.
        out: Write the messages to this .json or .jsonl file (default: not written).
    """

    source: str
    resume: HostName | None = None
    window: Positive | None = None
    target: str | None = None
    detail: Detail | None = None
    range: str | None = None
    model: str | None = None
    policy: Annotated[str, click.Choice(tuple(POLICIES))] | None = None
    mode: Annotated[Mode, click.Choice(_MODES)] | None = None
    session: str | None = None
    instructions: str | None = None
    pins: tuple[str, ...] = ()
    format: FormatName | None = None
    to: FormatName | None = None
    as_json: bool = False
    out: NewFile | None = None
    undo: int | None = None
    restore: str | None = None

    @property
    def is_plan(self) -> bool:
        """Whether the compaction is only planned, so that nothing is written."""
        return self.mode == "plan"


@dataclass(frozen=True, slots=True)
class _Outcome:
    """A compaction.

    Attributes:
        given: The conversation.
        result: The result of the compaction.
        resumable: The session written for a host, or None.
        notes: Notes on the conversation and the options, which the result does not contain.
    """

    given: Input
    result: CompactResult
    resumable: session_files.Resumable | None
    notes: Sequence[str]


@click.command()
@click.argument("source", metavar="SESSION")
@options_of(_Options)
@click.pass_context
def compact(context: click.Context, /, **options: Any) -> None:
    """Compact a conversation, archive all its messages and report the result.

    SESSION is a session file, `-` for standard input, the ID of an archived session or its
    beginning, or `current` for the newest session of a host in this folder. The file itself never
    changes.
    """
    chosen, config = _Options(**options), config_of(context)
    outcome = _run(chosen, config)
    if not chosen.as_json:
        _print_report(outcome, chosen, config)


def _run(options: _Options, config: Config) -> _Outcome:
    """Compact or undo, write the messages to --out, and print the report with --json."""
    _check_out(options.out, options.source)
    outcome = anyio.run(_compact, options, config)
    if options.out is not None:
        _write_messages(options.out, outcome.result.messages)
    if options.as_json:
        say_exactly(json.dumps(_report(outcome), ensure_ascii=True, indent=1))
    return outcome


async def _compact(options: _Options, config: Config) -> _Outcome:
    with progress(_PROGRESS.get(options.mode or "", "Compacting")) as report:
        async with open_archive(config.archive, redaction=config.redaction) as archive:
            given = await _open_input(options.source, archive)
            if options.format:
                given = replace(given, format=options.format)
            request = await to_thread.run_sync(partial(_request, options, given, config))
            if options.restore is not None:
                pointer = (await open_source(archive, options.restore)).pointer
                request = replace(request, restore=pointer)
            writer = config.summaries.writer
            # The writers "host" and "sampling" need an MCP client, and a plan is free.
            is_without = writer in {"host", "sampling"} or options.is_plan
            model = None if is_without else model_for(writer, config, None)
            given, result = await compacted(
                given,
                request,
                archive,
                config,
                options.to or session_files.RESUME_FORMATS.get(options.resume or ""),
                model=model,
                report_progress=async_report(report),
            )
            result = await with_dropped_names(result, archive)
            resumable = None
            has_news = result.changed or result.status == "undone"
            if options.resume and has_news and not options.is_plan:
                resumable = await resumable_of(result, options.resume, given, archive)
    return _Outcome(given, result, resumable, _notes(given, result, options, config))


async def read_input(file: str) -> Input:
    """Return the conversation in a file, or in standard input if `file` is `-`.

    Raises:
        CompactionError: The file contains no conversation.
    """
    if file == "-":
        return await input_of_file(await to_thread.run_sync(sys.stdin.buffer.read), "stdin")
    return await input_of_file(await anyio.Path(file).read_bytes(), Path(file).name)


async def _open_input(source: str, archive: Archive) -> Input:
    """Return the conversation that SESSION identifies.

    Raises:
        CompactionError: There is no such conversation.
    """
    if source == "-":
        return await read_input(source)
    path = Path(source)
    if source == session_files.CURRENT and not await anyio.Path(path).exists():
        path = await to_thread.run_sync(session_files.current_transcript, this_user())
    if await to_thread.run_sync(is_file, path):
        return await read_input(str(path))
    try:
        session_id = await find_session(archive, source)
    except (NotFoundError, SettingsError) as error:
        is_taken = await anyio.Path(path).exists()
        problem = "Not a regular file" if is_taken else "No such file or session"
        raise NotFoundError(
            f"{problem}: {source}. Pass a session file, a session ID (list them with: "
            f"{own_command()} sessions), {session_files.CURRENT}, or - for standard input."
        ) from error
    return await archived_input(archive, session_id)


def _request(options: _Options, given: Input, config: Config) -> CompactRequest:
    model = options.model or given.model or config.model
    has_resume_target = options.resume is not None and not (
        options.mode or options.detail or options.range
    )
    target = options.target or (_RESUME_TARGET if has_resume_target else None)
    return given.request(
        config,
        options.model,
        mode=options.mode or "auto",
        session_id=options.session or given.session_id,
        context_window=options.window,
        target_tokens=_target_tokens(target, given, model),
        detail=options.detail,
        range=_message_range(options.range),
        policy=options.policy or config.policy,
        pinned=options.pins,
        instructions=options.instructions or "",
        undo=options.undo,
    )


def _message_range(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, dash, last = text.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and len(text) < 20):
        raise SettingsError(
            f"Invalid --range {text!r}. Pass two message numbers, counted from 0, for example 3-10."
        )
    return int(first), int(last)


def _target_tokens(target: str | None, given: Input, model: str | None) -> int | None:
    """Return the target in tokens. A percentage is of the messages, without system and tools."""
    if target is None:
        return None
    number = target.removesuffix("%").replace("_", "").replace(",", "")
    if not number.isdecimal() or len(number) > 12 or int(number) == 0:
        raise SettingsError(
            f"Invalid --target {target!r}. Pass tokens, for example 50000, or a share, for example "
            "25%."
        )
    if not target.endswith("%"):
        return int(number)
    overhead, total = given.count_tokens(model)
    return max(1, overhead + total * int(number) // 100)


def _check_out(out: Path | None, source: str) -> None:
    """Refuse an invalid --out before anything is read."""
    if out is None:
        return
    if out.suffix not in {".json", ".jsonl"}:
        raise SettingsError(f"Invalid --out {out}. Pass a file name with .json or .jsonl.")
    if is_file(out) and is_file(Path(source)) and out.samefile(source):
        raise SettingsError("--out is the input file, which never changes. Pass another file.")
    if not out.absolute().parent.is_dir():
        raise SettingsError(f"The folder of --out {out} does not exist. Create it first.")


def _write_messages(out: Path, messages: Sequence[JsonObject]) -> None:
    """Write messages as JSON or JSON lines, by the end of the file's name."""
    if out.suffix == ".jsonl":
        text = "".join(json.dumps(message) + "\n" for message in messages)
    else:
        text = json.dumps(messages, indent=1) + "\n"
    try:
        put_file(out.absolute(), text.encode("ascii"))
    except OSError as error:
        raise SettingsError(
            f"Cannot write {out}: {error.strerror}. Pass another file as --out."
        ) from error


def _notes(given: Input, result: CompactResult, options: _Options, config: Config) -> list[str]:
    """Return notes on the conversation, an unknown model, and options without effect."""
    notes = list(given.notes)
    model = options.model or (config.model if given.model is None else None)
    unknown = profile_for(None)
    if model is not None and profile_for(model).name == unknown.name:
        notes.append(
            f"Unknown model {model!r}. A window of {unknown.context_window:,} tokens is assumed, "
            "and tokens are overestimated. Set the window with --window."
        )
    texts = {"--pin": options.pins, "--instructions": options.instructions}
    unused = " and ".join(option for option, value in texts.items() if value)
    if unused and not result.receipt.get("writer"):
        notes.append(
            f"{unused} had no effect, because no summary was needed. To get a summary, pass a "
            "smaller --target."
        )
    return notes


def _report(outcome: _Outcome) -> JsonObject:
    """Return the receipt and further figures for `--json`."""
    result, resumable = outcome.result, outcome.resumable
    return {
        **result.receipt,
        "session_id": result.session_id,
        "status": result.status,
        "changed": result.changed,
        "fits": result.fits,
        "message_count": {"before": len(outcome.given.payload), "after": len(result.messages)},
        "warnings": list(result.warnings),
        "notes": list(outcome.notes),
        "resume": resumable and asdict(resumable) | {"path": str(resumable.path)},
    }


def _print_report(outcome: _Outcome, options: _Options, config: Config) -> None:
    result, tokens = outcome.result, outcome.result.tokens
    _print_headline(outcome, is_plan=options.is_plan)
    if not options.is_plan:
        session = short_session(result.session_id)
        address = config.archive_address
        place = config.archive_folder if address is None else shown_address(address)
        say(f"Archived: session {session} (all messages) in {place}")
    if options.out is not None:
        say(f"Messages written to: {options.out}")
    say()
    say(
        f"Trigger: {tokens.trigger:,} tokens. Target: {tokens.target:,}. Result: {tokens.after:,} "
        f"(upper estimate {tokens.upper:,})."
    )
    if result.status == "unchanged" and options.mode in (None, "auto"):
        say("Nothing to do below the trigger. To compact anyway, add --target N or --mode full.")
    say(f"Format: {result.format}. Tokens counted by: {tokens.method}.")
    if result.layers:
        _print_layers(result, is_plan=options.is_plan)
    if not result.fits:
        say(f"Does not fit: the upper estimate exceeds the limit of {tokens.limit:,} tokens.")
        say("These pieces cannot shrink:")
        for line in irreducible_lines(result):
            say(f"  {line}")
    for line in grouped([*outcome.notes, *result.warnings]):
        say(f"Note: {line}")
    _print_summary(result)
    if options.resume is not None:
        _print_resume(outcome.resumable, is_plan=options.is_plan)
    _print_next_steps(result, options)


def _print_next_steps(result: CompactResult, options: _Options) -> None:
    """Print what a person may do with the result, the most likely step first."""
    session = short_session(result.session_id)
    say()
    if options.is_plan:
        say("Next: omit --mode plan to compact.")
        return
    if result.changed and options.out is None and options.resume is None:
        say("Next: add --out FILE to save the messages, or --resume HOST to continue in a host.")
    say(f"See what changed: {own_command()} view")
    say(f'Search it: {own_command()} search "WORDS" --session {session}')
    say(f"Read it: {own_command()} read {session}/0-9")
    if result.status == "compacted":
        say(f"Take it back: {own_command()} undo {session}")


def _print_headline(outcome: _Outcome, *, is_plan: bool) -> None:
    """Print the result in one line, and the earlier compaction that it is based on."""
    result = outcome.result
    before, after = len(outcome.given.payload), len(result.messages)
    tokens = f"{result.tokens.before:,} -> {result.tokens.after:,} tokens"
    earlier = result.receipt.get("recognised")
    if is_plan:
        say(f"Plan (nothing is written): {before:,} messages, {tokens}")
    elif earlier and result.tokens.before == result.tokens.after:
        say(f"As before: {before:,} -> {after:,} messages, {result.tokens.after:,} tokens")
    else:
        status = result.status.capitalize().replace("_", " ")
        say(f"{status}: {before:,} -> {after:,} messages, {tokens}")
    if earlier:
        say(
            f"Earlier compaction: replaced the first {earlier['message_count']:,} messages by "
            f"{earlier['context_count']:,}, from which this one started"
        )


def _print_summary(result: CompactResult) -> None:
    """Print who wrote the summary, which names it lacks, and which files were restored."""
    if writer := written_by(result.receipt):
        say(f"Summary written by: {writer}")
    if kinds := result.receipt.get("losses", {}).get("kinds"):
        counts = (
            plural(names["total"], "URL" if kind == "url" else kind)
            for kind, names in kinds.items()
        )
        say(f"Names no longer in the context: {', '.join(counts)}")
        say(f"Find such a name: {own_command()} search NAME")
    if result.restored:
        say(f"Restored files: {', '.join(result.restored)}")


def _print_resume(resumable: session_files.Resumable | None, *, is_plan: bool) -> None:
    """Print how to continue the written session, or why none was written."""
    if is_plan:
        say("No session was written, because this is a plan. To write it, omit --mode plan.")
    elif resumable is None:
        say("No session was written, because nothing was compacted. Continue the original.")
    else:
        say(f"Compacted session written to: {resumable.path}")
        say("The original is unchanged.")
        say(f"Continue it with: {resumable.command}")


def _print_layers(result: CompactResult, *, is_plan: bool) -> None:
    """Print a table with a row for each layer, followed by pointers to the removed content."""
    say()
    say(f"{'layer':<13}{'before':>10}{'after':>10}{'saved':>10}  actions")
    for layer in result.layers:
        edits = [edit for edit in result.edits if edit.layer == layer.name]
        saved = layer.tokens_before - layer.tokens_after
        is_superseded = layer.edit_count and not edits
        actions = "superseded by the summary" if is_superseded else _actions(edits)
        say(
            f"{layer.name:<13}{layer.tokens_before:>10,}{layer.tokens_after:>10,}{saved:>10,}"
            f"  {actions}"
        )
        if is_plan:
            continue  # because the pointers of a plan are not stored
        pointers = list(dict.fromkeys(short_pointer(p) for edit in edits for p in edit.pointers))
        for pointer in pointers[:_MAX_POINTERS]:
            say(f"    {pointer}")
        if len(pointers) > _MAX_POINTERS:
            say(f"    and {len(pointers) - _MAX_POINTERS} more (list all with --json)")
    if not is_plan and any(edit.pointers for edit in result.edits):
        say(f"Read an original: {own_command()} read POINTER")
    say()


def _actions(edits: Sequence[Edit]) -> str:
    """Return the most frequent actions of a layer."""
    counts = Counter(f"{edit.action} {edit.tool_name or ''}".strip() for edit in edits)
    listed = [f"{action} x{n}" if n > 1 else action for action, n in counts.most_common(2)]
    return ", ".join(listed) + (f", {len(counts) - 2} more" if len(counts) > 2 else "")


@click.command()
@click.argument("source", metavar="SESSION")
@click.argument("undo", metavar="[N]", required=False, type=click.IntRange(0))
@options_of(_Options)
@click.pass_context
def undo(context: click.Context, /, **options: Any) -> None:
    """Take compaction N of a conversation back, or the newest one.

    The result is the list as it was before that compaction, followed by everything since. Nothing
    is deleted. Later calls with the mode auto leave the list alone until it exceeds the window.
    SESSION is as for `compact`; the viewer shows the number of each compaction.

    Options:
        resume: Write a new session that this host can continue (default: none).
        window (N): Refuse a list that does not fit a context window of N tokens (default: of the
            model).
        restore (POINTER): Put only these messages or this output back into the list, in full,
            instead of taking a compaction back (default: none).
        as_json: Print the receipt as JSON.
        out: Write the messages to this .json or .jsonl file (default: not written).
    """
    chosen = _Options(mode="undo", **options)
    if chosen.undo is not None and chosen.restore is not None:
        raise click.UsageError("Pass N or --restore POINTER, not both.")
    outcome = _run(chosen, config_of(context))
    if chosen.as_json:
        return
    result = outcome.result
    say(
        f"{what_was_undone(result)} The list has {len(result.messages):,} messages, "
        f"{result.tokens.after:,} tokens (up to {result.tokens.upper:,}). Nothing was deleted."
    )
    if chosen.out is not None:
        say(f"Messages written to: {chosen.out}")
    if chosen.resume is not None:
        _print_resume(outcome.resumable, is_plan=False)
    if chosen.out is None and chosen.resume is None:
        command = f"{own_command()} undo {short_session(result.session_id)}"
        say("Save the messages: add --out FILE. Write a session for a host: add --resume HOST")
        say(f"Take an earlier compaction back as well: {command}")

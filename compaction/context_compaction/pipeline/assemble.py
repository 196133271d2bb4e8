"""Assemble the result: the list with its summary, restored files and notes; then validate it.

The text of a file is the one on disk if it is inside the roots, otherwise the last in the list.
States of files are in the archive, so every process knows the same.

`validate` is the last check: validity, limits and progress of the result. Notes follow it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from context_compaction.activity import known_file
from context_compaction.activity.digest import MAX_LISTED, open_todos
from context_compaction.activity.files import follow_files, unsure_note, without_secrets
from context_compaction.context import (
    CompactionContext,
    EditedMessages,
    FilesInWork,
    Plan,
    Validation,
)
from context_compaction.file_access import DiskFile, ReadFile
from context_compaction.formats import render
from context_compaction.layers.base import FileText
from context_compaction.layers.cut_point import CutPoint, history_of
from context_compaction.layers.insert_messages import (
    acknowledge,
    insert_files,
    summary_message,
    with_turn_context,
)
from context_compaction.layers.repair import alternate_roles, repair, repair_after_removal
from context_compaction.messages import model, placeholders
from context_compaction.messages.pins import pin_block
from context_compaction.messages.raw import history_hash
from context_compaction.messages.speakers import newest_results, user_texts
from context_compaction.pipeline.read import without_invalid_thinking
from context_compaction.request import Mode
from context_compaction.result import Piece, Status
from context_compaction.summarizers.extractive.items import FileItem
from context_compaction.summarizers.instructions.sentences import OMISSION

# Within this limit no summary gets long.
_SHORT_TOKENS = 400
_CHANGED = "changed on disk since it was last read here"
_UNKNOWN = known_file.FileState("", "", -1, "", "", 0.0, is_changed=False)
# A result that misses its target must save at least this share of the tokens.
_LEAST_PROGRESS = 0.1
_REPEATED = (
    "An earlier call with the same list returned this result. If the provider has rejected it as "
    "well, pass this list with mode=reactive to make it smaller."
)


def assemble(
    context: CompactionContext, plan: Plan, files: Sequence[FileText] = ()
) -> EditedMessages:
    """Return the list with its summary and restored files, without invalid thinking."""
    edited = plan.edited
    if plan.cut is not None:
        edited = _with_summary(context, plan, plan.cut)
        # Before files are restored, because they take the room of removed thinking.
        edited = _without_invalid_thinking(context, edited)
        if plan.bought_files:
            index = _restore_index(edited.messages, plan, plan.cut)
            step = insert_files(edited.messages, plan.bought_files, index, context.count)
            edited = edited.then("restore", step, context.count)
        elif files and not plan.fills:
            edited = _with_restored_files(context, plan, plan.cut, edited, files)
        if context.settings.acknowledge:
            ends = bool(context.messages) and context.messages[-1].role == "assistant"
            step = acknowledge(edited.messages, ends_with_assistant=ends, count=context.count)
            edited = edited.then("acknowledge", step, context.count)
    repaired = repair_after_removal(edited.messages, context.rules)
    edited = edited.then("repair", repaired, context.count)
    return _without_invalid_thinking(context, edited)


def _without_invalid_thinking(context: CompactionContext, edited: EditedMessages) -> EditedMessages:
    step = without_invalid_thinking(context, edited.messages, context.messages)
    return edited.then("thinking", step, context.count)


def _with_summary(context: CompactionContext, plan: Plan, cut: CutPoint) -> EditedMessages:
    history, prefix = plan.history, plan.prefix
    pins = pin_block(plan.pins, context.pins.unpinned)
    may_grow = context.budget.message_tokens > _SHORT_TOKENS
    first = inside = None
    if cut.folds_request:
        text = with_turn_context(plan.summary, plan.checkpoint)
        first = summary_message(context.span_of(plan.replaced), text, pins, may_grow=may_grow)
    elif history or pins:
        # A summary of pinned text alone refers to the beginning of the running turn.
        replaced = history or history_of(plan.edited.messages, cut) or prefix
        span = context.span_of(replaced)
        first = summary_message(span, plan.summary, pins, may_grow=may_grow)
    if prefix and not cut.folds_request:
        text = placeholders.turn_context(context.span_of(prefix), plan.checkpoint)
        inside = model.make_message("user", text)
    layer_context = replace(context.layer_context, cut=cut, summary=first, checkpoint=inside)
    edited = plan.edited
    for name, layer in context.policy.at_stage("replace"):
        edited = edited.then(name, layer.apply(edited.messages, layer_context), context.count)
    return _without_subsumed(edited)


def _without_subsumed(edited: EditedMessages) -> EditedMessages:
    """Remove edits of messages that a summary has replaced, because its pointer covers them."""
    present = {message.index for message in edited.messages}
    edits = tuple(
        edit for edit in edited.edits if edit.action == "summarized" or edit.index in present
    )
    pointers = {pointer for edit in edits for pointer in edit.pointers}
    blobs = tuple(blob for blob in edited.blobs if blob.output_id in pointers)
    return EditedMessages(edited.messages, edits, blobs, edited.layers)


def _with_restored_files(
    context: CompactionContext,
    plan: Plan,
    cut: CutPoint,
    edited: EditedMessages,
    files: Sequence[FileText],
) -> EditedMessages:
    """Return `edited` with the files that the policy's layer chooses."""
    for name, layer in context.policy.at_stage("restore"):
        files_at = _restore_index(edited.messages, plan, cut)
        # A message may follow that acknowledges the summary, and one that separates user messages.
        reserved = 2 * context.count.message(
            model.make_message("assistant", placeholders.ACKNOWLEDGED)
        )
        fitting_tokens = context.count.messages(edited.messages) + context.room_tokens(
            edited.messages
        )
        # The result must be smaller than the list, however short that was.
        limit_tokens = min(fitting_tokens, context.count.messages(context.messages)) - reserved
        layer_context = replace(
            context.layer_context, files=files, files_at=files_at, limit_tokens=limit_tokens
        )
        edited = edited.then(name, layer.apply(edited.messages, layer_context), context.count)
    return edited


def _restore_index(messages: model.Messages, plan: Plan, cut: CutPoint) -> int:
    """Return the index of restored files: after the summary, before the running turn's request."""
    source, anchor_at = plan.edited.messages, cut.first_index_after_summary
    if anchor_at >= len(source):
        return len(messages)
    # The anchor itself is missing if nothing of it is left, so a later message can take its place.
    later_ids = {id(message) for message in source[anchor_at:]}
    indices = {message.index for message in source[anchor_at:]} - {None}
    return next(
        (
            index
            for index, message in enumerate(messages)
            if id(message) in later_ids or message.index in indices
        ),
        len(messages),
    )


def reports_changed_files(context: CompactionContext) -> bool:
    """Whether this call may append a note that lists files changed on disk."""
    return context.settings.list_changed_files and returns_list(context)


def returns_list(context: CompactionContext) -> bool:
    """Whether the caller sends the returned list to the model next."""
    return context.request.mode in ("auto", "micro", "full") and not context.request.prepare


def find_files(context: CompactionContext, plan: Plan) -> FilesInWork | None:
    """Return the files in work before the disk is read; None if this call needs none."""
    if not (plan.acts or context.budget.is_over or reports_changed_files(context)):
        return None
    files = follow_files(context.messages, context.settings.tool_kinds)
    # States of longer lists are skipped, so that a repeated call returns the same bytes.
    stop_seq = max(context.session.seqs, default=-1)
    earlier = (
        state.files for state in reversed(context.session.states) if state.stop_seq < stop_seq
    )
    newest = next((states for states in earlier if states is not None), ())
    return FilesInWork(files, {state.path: state for state in newest})


async def files_on_disk(
    files: FilesInWork | None, read_file: ReadFile | None
) -> dict[str, DiskFile]:
    """Return the files in work that are inside the roots and can be read, by path."""
    if files is None or read_file is None:
        return {}
    found = {
        path: await read_file(path) for path in known_file.tracked_paths(files.files, files.states)
    }
    return {path: file for path, file in found.items() if file is not None}


def with_disk(
    context: CompactionContext, files: FilesInWork | None, on_disk: Mapping[str, DiskFile]
) -> FilesInWork:
    """Return `files` with their states compared with the disk."""
    if files is None:
        return FilesInWork()
    seqs = context.session.seqs
    states = known_file.updated_states(files.files, files.states, on_disk, context.messages, seqs)
    has_baseline = reports_changed_files(context) and any(
        state.disk_sha256
        and not state.seen_sha256
        and state.seq != files.states.get(path, _UNKNOWN).seq
        for path, state in states.items()
    )
    return FilesInWork(files.files, states, on_disk, has_baseline)


def file_items(context: CompactionContext, files: FilesInWork, shift: int) -> Iterator[FileItem]:
    """Yield the files that a filled target may contain, as on disk or as the list shows them last.

    Args:
        context: The call.
        files: The files in work.
        shift: Number of messages that the record has before the list's first message.
    """
    if not (context.policy.restores_files and context.settings.restore_files):
        return
    unread = newest_results(context.messages)
    for path, file in files.files.items():
        is_shown = unread and file.read_at >= unread.start
        known = _text_of(context, files, path)
        if known.text.strip() and not is_shown:
            index = file.used_at + shift
            yield FileItem(
                path, known.text, index, file.focus, known.note, file.was_written, file.names
            )


def _text_of(context: CompactionContext, files: FilesInWork, path: str) -> FileText:
    """Return the last known text of a file, without deleted files and files with secrets."""
    file, state = files.files[path], files.states.get(path)
    if file.is_deleted:
        return FileText(path, "")
    if disk := files.on_disk.get(path):
        note = _CHANGED if state and state.is_changed else ""
        return FileText(path, without_secrets(path, disk.text), note)
    text, note = without_secrets(path, file.text or ""), ""
    if text and not file.is_whole:
        text = f"{OMISSION}\n{text}\n{OMISSION}"
    if file.unsure_since is not None:
        note = unsure_note(context.number_of(context.messages[file.unsure_since]))
    return FileText(path, text, note)


def files_to_restore(context: CompactionContext, plan: Plan) -> list[FileText]:
    """Return the files that were read, for the layer `restore`: certain ones first, then newest.

    None is restored if no history is replaced, or if the target was filled.
    """
    if plan.cut is None or plan.fills or context.request.range is not None:
        return []
    kept = plan.edited.messages[plan.cut.first_kept :]
    shown = {
        message.index
        for message in kept
        if not all(map(placeholders.seems_placeholder, model.tool_results(message)))
    }
    read = [
        file
        for file in plan.files.files.values()
        if file.read_at >= 0 and not file.is_deleted
        if context.messages[file.read_at].index not in shown
    ]
    read.sort(key=lambda file: (file.unsure_since is not None, -file.read_at))
    return [_text_of(context, plan.files, file.path) for file in read]


def validate(context: CompactionContext, edited: EditedMessages) -> Validation:
    """Accept `edited`, or return the caller's repaired list with the reasons."""
    count, mode, valid = context.count, context.request.mode, context.messages
    if edited.messages is valid:
        return _validate_unedited(context, edited)
    repairs = repair(edited.messages, context.rules).edits
    if repairs:
        notes = "; ".join(edit.note for edit in repairs[:3])
        return _fallback(context, f"the provider would reject the result ({notes})")
    rejected = context.session.rejections.rejected
    if rejected and history_hash(render(edited.messages, format=context.format)) in rejected:
        return _fallback(context, "the provider has rejected the smallest list as well")
    before, after = count.messages(valid), count.messages(edited.messages)
    saves_bytes = count.request_bytes(edited.messages) < count.request_bytes(valid)
    if after >= before and not saves_bytes:
        return _fallback(context, "nothing could be made smaller")
    is_little = before - after < before * _LEAST_PROGRESS and context.request.range is None
    if is_little and not _fits(context, edited.messages, mode):
        saved = f"only {before - after} of {before} tokens could be saved"
        return _fallback(context, f"{saved}, and the result does not fit")
    return _verdict(context, edited, "compacted", mode)


def _validate_unedited(context: CompactionContext, edited: EditedMessages) -> Validation:
    mode = context.request.mode
    if context.start.edits:
        return _verdict(context, edited, "repaired", mode)
    if context.session.is_repeated:
        # The earlier call had this outcome, so it is no failure that nothing is left to do.
        warnings = (_REPEATED,) if mode == "reactive" else ()
        return _verdict(context, edited, "unchanged", "auto", *warnings)
    unchanged = _verdict(context, edited, "unchanged", mode)
    if mode == "record" or (unchanged.fits and mode not in ("full", "micro")):
        return unchanged
    return _fallback(context, "nothing is left to clear or to summarize")


def _fallback(context: CompactionContext, reason: str) -> Validation:
    rejections, mode = context.session.rejections, context.request.mode
    if rejections.is_spent:
        limit = f"reactive_retries allows ({rejections.max_retries})"
        reason = f"this request was compacted as often as {limit}"
    warnings = [
        f"No progress: {reason}. The conversation is returned without edits except repairs."
    ]
    if rejections.key:
        warnings.append(
            f"The provider has rejected {rejections.versions} versions of this request. Do not "
            "send it again unchanged: shorten the parts that cannot shrink, or start a new "
            "conversation."
        )
    verdict = _verdict(context, EditedMessages(context.messages), "no_progress", mode, *warnings)
    return replace(verdict, fits=verdict.fits and not rejections.key)


def _verdict(
    context: CompactionContext, edited: EditedMessages, status: Status, mode: Mode, *warnings: str
) -> Validation:
    """Return `edited` with its status, and a warning if it does not fit the limit of `mode`."""
    fits = _fits(context, edited.messages, mode)
    if not fits:
        warnings = (_too_large(context, edited.messages), *warnings)
    return Validation(edited, status, fits, warnings)


def _fits(context: CompactionContext, messages: model.Messages, mode: Mode) -> bool:
    if not messages:
        return True
    return (
        context.request_count.estimate(messages).upper <= context.budget.limit_tokens(mode)
        and context.count.request_bytes(messages) <= context.budget.max_bytes
    )


def _too_large(context: CompactionContext, messages: model.Messages) -> str:
    mode = context.request.mode
    upper = context.request_count.estimate(messages).upper
    limit = context.budget.limit_tokens(mode)
    problem = f"The list does not fit: up to {upper} tokens, limit {limit}. "
    if mode in ("micro", "record"):
        return f"{problem}Mode {mode} replaces no history: use auto or full."
    if not context.policy.replaces_history:
        return f"{problem}Policy {context.policy.name} replaces no history: use another policy."
    if context.request.range is not None:
        return f"{problem}Only a range was summarized: call again without range."
    pieces = irreducible_pieces(context, messages)[:3]
    names = ", ".join(f"{piece.description} ({piece.tokens} tokens)" for piece in pieces)
    return f"{problem}These parts cannot shrink: {names}. Raise the target, or shorten them."


def irreducible_pieces(context: CompactionContext, messages: model.Messages) -> tuple[Piece, ...]:
    """Return the largest parts of `messages`, largest first, with indices in the caller's list."""
    requests = [at for at, message in enumerate(messages) if user_texts(message)]
    newest = requests[-1] if requests else -1
    pieces = [
        Piece(
            _description(message, is_newest=index == newest),
            context.session.input_index(message.index),
            context.count.message(message),
        )
        for index, message in enumerate(messages)
    ]
    if overhead_tokens := context.request_count.overhead_tokens:
        pieces.append(Piece("system prompt and tools", None, overhead_tokens))
    pieces.sort(key=lambda piece: -piece.tokens)
    return tuple(pieces[:MAX_LISTED])


def _description(message: model.Message, *, is_newest: bool) -> str:
    if message.role == "system":
        return "system message"
    if placeholders.is_synthetic(message):
        is_summary = placeholders.summary_text(message) is not None
        return "summary with its pinned text" if is_summary else "checkpoint or note"
    if is_newest:
        return "the user's newest request"
    if any(isinstance(block, model.ToolResult) for block in message.blocks):
        return "tool results of the newest call"
    if model.tool_calls(message):
        return "newest tool calls"
    return f"{message.role} message"


def with_notes(
    context: CompactionContext, validation: Validation, files: FilesInWork
) -> tuple[Validation, FilesInWork]:
    """Add notes of files that changed on disk and of open todos, each once.

    A note precedes the newest request or follows the newest results, so it invalidates no cache.
    """
    if reports_changed_files(context) and _accepts_notes(validation):
        changed = known_file.unreported_changes(files.states, files.on_disk)
        warning = known_file.changed_warning(changed)
        if warning is not None:
            text = placeholders.changed_files(warning)
            files = replace(files, states={**files.states, **changed})
            validation = _with_note(context, validation, "changed_files", text)
    return _with_todos(context, validation), files


def _with_todos(context: CompactionContext, validation: Validation) -> Validation:
    """Add a note of the open todos: once for each request, and after a compaction."""
    is_enabled = context.settings.list_open_todos and returns_list(context)
    if not (is_enabled and _accepts_notes(validation)):
        return validation
    messages, items = validation.edited.messages, open_todos(context.messages)[:MAX_LISTED]
    if placeholders.is_request(messages[-1]):
        is_known = any(map(placeholders.todos_in, messages[:-1][-2:]))
    else:
        is_known = bool(open_todos(messages))
    text = placeholders.open_todos(items)
    if not items or is_known or context.room_tokens(messages) < 2 * context.count.text(text):
        return validation
    return _with_note(context, validation, "open_todos", text)


def _accepts_notes(validation: Validation) -> bool:
    """Whether the returned list ends with a request or results, next to which a note may be."""
    messages = validation.edited.messages
    is_returned = validation.status != "no_progress"
    return is_returned and bool(messages) and messages[-1].role == "user"


def _with_note(
    context: CompactionContext, validation: Validation, name: str, text: str
) -> Validation:
    """Insert a note before the newest request, or append it to the newest results."""
    messages = validation.edited.messages
    note = model.make_message("user", text)
    has_results = any(isinstance(block, model.ToolResult) for block in messages[-1].blocks)
    is_alone = placeholders.is_request(messages[-1]) and not has_results
    index = len(messages) - 1 if is_alone else len(messages)
    edit = model.Edit(name, "added", None, 0, context.count.message(note))
    step = model.Step((*messages[:index], note, *messages[index:]), (edit,))
    if context.rules.roles_alternate:
        alternating = alternate_roles(step.messages, context.rules)
        step = model.Step(alternating.messages, (edit, *alternating.edits))
    edited = validation.edited.then(name, step, context.count)
    return replace(validation, edited=edited, status="compacted")

"""The last check: validity, limits and progress of the result. Then notes are added."""

from dataclasses import replace

from context_compaction.activity.digest import MAX_LISTED, open_todos
from context_compaction.activity.known_file import changed_warning, unreported_changes
from context_compaction.context import CompactionContext, EditedMessages, FilesInWork, Validation
from context_compaction.formats import render
from context_compaction.layers.repair import alternate_roles, repair
from context_compaction.messages import placeholders
from context_compaction.messages.model import (
    Edit,
    Message,
    Messages,
    Step,
    ToolResult,
    make_message,
    tool_calls,
)
from context_compaction.messages.raw import history_hash
from context_compaction.messages.speakers import user_texts
from context_compaction.pipeline.sources import reports_changed_files, returns_list
from context_compaction.request import Mode
from context_compaction.result import Piece, Status

# A result that misses its target must save at least this share of the tokens.
_LEAST_PROGRESS = 0.1
_REPEATED = (
    "An earlier call with the same list returned this result. If the provider has rejected it as "
    "well, pass this list with mode=reactive to make it smaller."
)


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


def _fits(context: CompactionContext, messages: Messages, mode: Mode) -> bool:
    if not messages:
        return True
    return (
        context.request_count.estimate(messages).upper <= context.budget.limit_tokens(mode)
        and context.count.request_bytes(messages) <= context.budget.max_bytes
    )


def _too_large(context: CompactionContext, messages: Messages) -> str:
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


def irreducible_pieces(context: CompactionContext, messages: Messages) -> tuple[Piece, ...]:
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


def _description(message: Message, *, is_newest: bool) -> str:
    if message.role == "system":
        return "system message"
    if placeholders.is_synthetic(message):
        is_summary = placeholders.summary_text(message) is not None
        return "summary with its pinned text" if is_summary else "checkpoint or note"
    if is_newest:
        return "the user's newest request"
    if any(isinstance(block, ToolResult) for block in message.blocks):
        return "tool results of the newest call"
    if tool_calls(message):
        return "newest tool calls"
    return f"{message.role} message"


def with_notes(
    context: CompactionContext, validation: Validation, files: FilesInWork
) -> tuple[Validation, FilesInWork]:
    """Add notes of files that changed on disk and of open todos, each once.

    A note precedes the newest request or follows the newest results, so it invalidates no cache.
    """
    if reports_changed_files(context) and _accepts_notes(validation):
        changed = unreported_changes(files.states, files.on_disk)
        warning = changed_warning(changed)
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
    note = make_message("user", text)
    has_results = any(isinstance(block, ToolResult) for block in messages[-1].blocks)
    is_alone = placeholders.is_request(messages[-1]) and not has_results
    index = len(messages) - 1 if is_alone else len(messages)
    edit = Edit(name, "added", None, 0, context.count.message(note))
    step = Step((*messages[:index], note, *messages[index:]), (edit,))
    if context.rules.roles_alternate:
        alternating = alternate_roles(step.messages, context.rules)
        step = Step(alternating.messages, (edit, *alternating.edits))
    edited = validation.edited.then(name, step, context.count)
    return replace(validation, edited=edited, status="compacted")

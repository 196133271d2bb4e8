"""The writer that needs no model: the facts that the next engineer would look for.

The user's words first, then a log of the work by turn, facts under what they belong to, and the
state of the work. Every line is an extract, made by straight rules from calls, results and words.
Which of them fit is decided by one order that does not depend on the room (fit.py). Cost is linear
in the text.
"""

from collections.abc import Iterator, Sequence

from context_compaction.activity.file_replay import replay_files
from context_compaction.messages.placeholders import is_request
from context_compaction.messages.speakers import agent_goes_on
from context_compaction.summarizers import SummaryInput
from context_compaction.summarizers.extractive.deeds import open_failures, short_names
from context_compaction.summarizers.extractive.facts import OUTPUTS, branch_lines, fact_lines
from context_compaction.summarizers.extractive.fit import (
    SMALL_TOKENS,
    Chosen,
    Line,
    chosen_lines,
    focused,
    tokens_of,
    versions,
)
from context_compaction.summarizers.extractive.parse import (
    FACTS,
    LOG,
    PREVIOUS,
    SECTION,
    STATE,
    TITLES,
    USER,
    USER_LABEL,
    USER_LINE,
    Previous,
    read_previous,
)
from context_compaction.summarizers.extractive.said import head_of, joined
from context_compaction.summarizers.extractive.turns import Turn, command_keys, turns_of
from context_compaction.summarizers.extractive.user_words import rendered, user_lines
from context_compaction.summarizers.extractive.work_log import (
    AGE_WANT,
    effect_lines,
    last_words,
    log_lines,
    plan_lines,
    record_lines,
    rendered_log,
    state_lines,
)
from context_compaction.summarizers.instructions.find import find_instructions
from context_compaction.summarizers.instructions.typed_text import sentences_of
from context_compaction.tokens.counter import MessageCounter

# How the sections share the room while each has something to say.
_SHARES = {USER: 2.5, LOG: 1.0, FACTS: 1.0, STATE: 1.0, PREVIOUS: 1.0}
_TITLES_TOKENS = 50
# So much of a text mostly shows that it is not small, without counting all of it.
_SMALL_CHARS = 4_000
_ENTRY_CHARS = (240, 12_000)  # of an entry of the summary before


def write(request: SummaryInput, count: MessageCounter) -> str:
    """The text of a summary, at most `request.max_tokens` by `count`; may be empty."""
    earlier = read_previous(request.previous)
    numbers = request.numbers or tuple(range(len(request.messages)))
    turns = turns_of(request.messages, numbers, request.tool_kinds, request.later)
    numbers = (*earlier.numbers, *numbers)
    sections = focused(_sections(request, earlier, turns, numbers), request.instructions)
    room_tokens = request.max_tokens
    if room_tokens > SMALL_TOKENS:
        room_tokens = max(SMALL_TOKENS, room_tokens - _TITLES_TOKENS)
    while True:
        chosen = chosen_lines(sections, _SHARES, room_tokens, count)
        text = _assembled(chosen, turns, numbers, has_titles=False)
        if count.text(text[:_SMALL_CHARS]) > SMALL_TOKENS or count.text(text) > SMALL_TOKENS:
            text = _assembled(chosen, turns, numbers, has_titles=True)
        excess = count.text(text) - request.max_tokens
        if excess <= 0 or not text:
            return text
        # What the lines left of their room leaves none of them out.
        room_tokens = min(room_tokens, tokens_of(chosen, count)) - excess


def _sections(
    request: SummaryInput, earlier: Previous, turns: Sequence[Turn], numbers: Sequence[int | None]
) -> dict[str, list[Line]]:
    """The lines of each section, of which not all may fit."""
    has_later = any(map(is_request, request.later))
    is_running = request.is_turn_prefix or not has_later
    run_later = command_keys(request.later, request.tool_kinds)
    keys_later = run_later if is_running else None
    files = request.files
    if files is None:
        files = replay_files(request.messages, request.tool_kinds)
    facts = [*fact_lines(turns, files, keys_later), *branch_lines(turns, run_later)]
    sections: dict[str, list[Line]] = {PREVIOUS: [*_entry_lines(earlier.entries, len(turns))]}
    if request.beside:
        # The prose was written from what commands and tools answered, and may say what was refuted.
        sections[FACTS] = [
            line
            for line in facts
            if line.place[0] < OUTPUTS and line.text.strip() not in request.beside
        ]
    else:
        still_open = open_failures(turns[-1:], keys_later)
        # Where the agent goes on before the user speaks, what it said last is past.
        is_past = not is_running and agent_goes_on(request.later)
        said = (-1, list[str]()) if is_past else last_words(turns)
        log = log_lines(turns, short_names(turns), files, still_open, joined(said[1]))
        sections[LOG] = [*log, *effect_lines((-1,), 0.0, request.effects)]
        sections[FACTS] = facts
        sections[STATE] = [*state_lines(turns, said, still_open, is_running=is_running)]
        plan = plan_lines(turns, is_running=is_running)
        for title, line in (*plan, *record_lines(turns)):
            sections[title].append(line)
    messages = (*earlier.messages, *request.messages)
    found = find_instructions(messages, later=request.later)
    pinned = {sentence.text for text in request.pinned for sentence in sentences_of(text)}
    pinned.update(request.pinned)
    sections[USER] = [*user_lines(messages, found, pinned, numbers, request.later)]
    return sections


def _assembled(
    chosen: Chosen, turns: Sequence[Turn], numbers: Sequence[int | None], *, has_titles: bool
) -> str:
    """The chosen lines as text; without titles the user's lines have a label."""
    rows: list[str] = []
    for title in TITLES:
        lines = chosen.get(title)
        if not lines:
            continue
        rows += [f"{SECTION}{title}"] if has_titles else []
        if title == USER:
            labels = {at: _label(numbers[at], len(numbers), has_titles) for at, *_ in lines}
            rows += rendered(lines, labels)
        else:
            told = [lines[place] for place in sorted(lines)]
            # Nothing that an entry holds can begin a line of its own, or speak for the user.
            told = rendered_log(lines, turns) if title == LOG else told
            shown = ("\n  ".join(text.splitlines()) for text in told)
            rows += [f"  {row}" if USER_LINE.match(row) else row for row in shown]
    return "\n".join(rows)


def _label(number: int | None, size: int, has_titles: bool) -> str:
    """The label that precedes the user's words of a message."""
    mark = "" if number is None or size == 1 else f"[{number}] "
    return f"{mark}{USER_LABEL}" if not has_titles and size > 1 else mark or "- "


def _entry_lines(entries: Sequence[str], age: int) -> Iterator[Line]:
    """The entries of the previous summary, wanted as if they were `age` turns old."""
    for at, entry in enumerate(entries):
        want = AGE_WANT * (age + len(entries) - at)
        texts = (head_of(entry, chars) for chars in _ENTRY_CHARS)
        yield from versions((at,), "", texts, (want, want + 1))

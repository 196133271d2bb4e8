"""The writer that needs no model: the facts that the next engineer would look for.

The user's words first, then a log of the work by turn, facts under what they belong to, and the
state of the work. Every line is an extract, made by straight rules from calls, results and words.
Which of them fit is decided by one order that does not depend on the room (fit.py). Cost is linear
in the text.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from posixpath import basename

from context_compaction.activity.file_replay import replay_files
from context_compaction.messages.placeholders import is_request
from context_compaction.summarizers import SummaryInput
from context_compaction.summarizers.extractive.facts import OUTPUTS, fact_lines
from context_compaction.summarizers.extractive.fit import (
    SMALL_TOKENS,
    Chosen,
    Line,
    Place,
    chosen_lines,
)
from context_compaction.summarizers.extractive.focus import focused
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
from context_compaction.summarizers.extractive.state import state_lines
from context_compaction.summarizers.extractive.turns import command_keys, turns_of
from context_compaction.summarizers.extractive.user_words import rendered, user_lines
from context_compaction.summarizers.extractive.work_log import (
    AGE_WANT,
    CLOSING,
    failures_of,
    log_lines,
    open_failures,
    short_names,
    tally_lines,
)
from context_compaction.summarizers.instructions.find import find_instructions
from context_compaction.summarizers.instructions.typed_text import sentences_of
from context_compaction.tokens.counter import MessageCounter

# How the sections share the room while each has something to say.
_SHARES = {USER: 3.0, LOG: 1.0, FACTS: 0.3, STATE: 0.1, PREVIOUS: 0.3}
_TITLES_TOKENS = 50
# Behind all other places in the entry of a turn.
_LAST = 2


def write(request: SummaryInput, count: MessageCounter) -> str:
    """The text of a summary, at most `request.max_tokens` by `count`; may be empty."""
    earlier = read_previous(request.previous)
    messages = (*earlier.messages, *request.messages)
    own_numbers = request.numbers or tuple(range(len(request.messages)))
    numbers = (*earlier.numbers, *own_numbers)
    turns = turns_of(request.messages, own_numbers, request.tool_kinds)
    names = short_names(turns)
    files = request.files
    if files is None:
        files = replay_files(request.messages, request.tool_kinds)
    failures = failures_of(turns, names)
    has_later = any(map(is_request, request.later))
    is_running = request.is_turn_prefix or not has_later
    keys_later: Set[str] = frozenset()
    if is_running:
        keys_later = command_keys(request.later, request.tool_kinds)
    still_open = open_failures(failures, turns, keys_later) if is_running else []
    telling = [one for one in failures if one.is_telling and one not in still_open]
    sections: dict[str, Sequence[Line]] = {
        LOG: [
            *log_lines(turns, names, telling),
            *_entry_lines(earlier, LOG, len(turns)),
            *tally_lines(request.tally),
        ],
        FACTS: _current([
            *fact_lines(turns, request.digest, files, keys_later if is_running else None),
            *_entry_lines(earlier, FACTS, 8),
        ]),
        STATE: state_lines(turns, request.digest, still_open, earlier.plan, is_running=is_running),
        PREVIOUS: [Line((at,), float(at), row) for at, row in enumerate(earlier.rest)],
    }
    if request.beside:
        del sections[LOG], sections[STATE]
        sections[FACTS] = _untold(sections[FACTS], request.beside)
    if not request.is_turn_prefix:
        found = find_instructions(messages, later=request.later)
        pinned = _sentences(request.pinned)
        sections[USER] = user_lines(messages, found, pinned, numbers, has_later=has_later)
    wanted = focused(sections, request.instructions)
    room_tokens = request.max_tokens
    if room_tokens > SMALL_TOKENS:
        room_tokens = max(SMALL_TOKENS, room_tokens - _TITLES_TOKENS)
    while True:
        chosen = chosen_lines(wanted, _SHARES, room_tokens, count)
        text = _assembled(chosen, numbers, has_titles=False)
        if count.text(text) > SMALL_TOKENS:
            text = _assembled(chosen, numbers, has_titles=True)
        excess = count.text(text) - request.max_tokens
        if excess <= 0 or not text:
            return text
        room_tokens -= excess


def _assembled(chosen: Chosen, numbers: Sequence[int | None], *, has_titles: bool) -> str:
    """The chosen lines as text; without titles the user's lines have a label."""
    rows: list[str] = []
    for title in TITLES:
        lines = chosen.get(title)
        if not lines:
            continue
        rows += [f"{SECTION}{title}"] if has_titles else []
        if title == USER:
            rows += rendered(
                lines, [_label(number, len(numbers), has_titles) for number in numbers]
            )
        else:
            if title == LOG:
                lines = dict(_in_order(lines))
            # Nothing that an entry holds can begin a line of its own, or speak for the user.
            shown = ("\n  ".join(lines[place].splitlines()) for place in sorted(lines))
            rows += [f"  {row}" if USER_LINE.match(row) else row for row in shown]
    return "\n".join(rows)


def _in_order(lines: Mapping[Place, str]) -> Iterator[tuple[Place, str]]:
    """The lines of the log, the agent's last words of a turn behind those that it said before."""
    for place, text in lines.items():
        entry, mark, closing = text.partition(CLOSING)
        yield place, entry
        if mark:
            yield (place[0], _LAST), f"  {mark.strip()} {closing}"


def _label(number: int | None, size: int, has_titles: bool) -> str:
    """The label that precedes the user's words of a message."""
    mark = "" if number is None or size == 1 else f"[{number}] "
    return f"{mark}{USER_LABEL}" if not has_titles and size > 1 else mark or "- "


def _sentences(texts: Sequence[str]) -> frozenset[str]:
    """The sentences of `texts`, and the whole texts."""
    found = (sentence.text for text in texts for sentence in sentences_of(text))
    return frozenset((*texts, *found))


def _entry_lines(earlier: Previous, title: str, age: int) -> Iterator[Line]:
    """The lines of a section of the previous summary, wanted as if they were `age` turns old."""
    entries = earlier.entries.get(title, ())
    for at, (head, rest) in enumerate(entries):
        place = (-1, at, 0)
        want = AGE_WANT * (age + len(entries) - at)
        yield Line(place, want, head)
        yield from (
            Line((-1, at, number), want + 1 + number / 10, row, place)
            for number, row in enumerate(rest, 1)
        )


def _untold(facts: Sequence[Line], prose: str) -> list[Line]:
    """The facts that `prose` does not contain, and the lines that they belong to.

    What commands and tools answered is not among them: the prose was written from it, and it may
    say what was refuted since.
    """
    told = [line for line in facts if line.place[0] < OUTPUTS]
    rows = [line for line in told if line.under and line.text.strip() not in prose]
    owners = {line.under for line in rows}
    heads = [
        line
        for line in told
        if not line.under and (line.place in owners or _name_of(line.text) not in prose)
    ]
    return [*heads, *rows]


def _name_of(head: str) -> str:
    """The base name of the file of an entry; all of `head` where it is of no file."""
    owner, mark, _ = head.partition(" (")
    return basename(owner) if mark else head


def _current(facts: Sequence[Line]) -> list[Line]:
    """The facts without those of the previous summary about a file that has newer ones."""
    owners = {line.text.partition(" (")[0] for line in facts if line.place[0] >= 0}
    gone = {
        line.place[1]
        for line in facts
        if line.place[0] < 0 and not line.under and line.text.partition(" (")[0] in owners
    }
    return [line for line in facts if line.place[0] >= 0 or line.place[1] not in gone]

"""The agent's words in pieces, and texts made short where a sentence, a row or an item ends."""

import re
from collections.abc import Sequence
from itertools import accumulate

from context_compaction.activity.command_line import to_last_space
from context_compaction.summarizers.instructions.typed_text import LEFT_OUT

_MARKUP = re.compile(
    r"(?<![*\w\"'`])\*\*(?=[^\s*])|(?<=[^\s*])\*\*(?![*\w\"'`])|^\s{0,3}#{1,6} ", re.MULTILINE
)
# A link whose text is the end of its address.
_LINK = re.compile(r"\[([^\[\]\n]{1,120})\]\(([^()\s]{0,300}?\1(?:[:#][\w-]{1,20})?)\)")
# What the agent tells its host to show: `::git-push{cwd="/app" branch="main"}`.
_DIRECTIVE = re.compile(r"::([a-z][\w-]{1,40})\{(?:cwd=\"[^\"]*\" ?)?([^{}]*)\}")
_FENCE = "```"
_RULE = re.compile(r"[|:\- ]+")  # below the head of a table
# Where a sentence ends; a row may begin with a number that has a dot behind it.
_SENTENCE_END = re.compile(r"(?<!\A\d\.)(?<!\A\d\d\.)(?<=[.!?。！？])[ \t]+")
_PIECE_START = re.compile(r"(?<!\A\d\.)(?<!\n\d\.)(?<=[.!?。！？])(?=[ \t])|(?=\n)")
_LIST_MARK = re.compile(r"\s*(?:\d{1,2}[.)]|[-*•])\s")
# Code, values, names of files and the like.
_TELLING = re.compile(r"`[^`]+`|\d[\d.,:%]*|\b\w{1,80}(?:[_/.]\w{1,80})+|\"[^\"]+\"|→")
_MOST_TELLING = 3
_LEAST_PIECE_CHARS = 12


def pieces_of(text: str) -> list[str]:
    """The parts of `text` that are told whole or not at all, without markup and empty rows.

    A part is a sentence, or a table or a block of code with the row that announces it. It begins
    with a line break where it begins a row, else with a space.
    """
    pieces: list[str] = []
    is_code = is_layout = False
    for row in text.split("\n"):
        flat = " ".join(row.split())
        if found := _DIRECTIVE.fullmatch(flat):
            row = flat = f"{found[1]} {found[2]}" if found[2] else ""
        is_fence = flat.startswith(_FENCE) and flat.count(_FENCE) == 1
        is_code ^= is_fence
        if is_fence or not flat or (not is_code and _RULE.fullmatch(flat)):
            continue
        was_layout, is_layout = is_layout, is_code or flat[0] == "|"
        if not is_layout:
            first, *more = _SENTENCE_END.split(_bare_row(row, flat))
            pieces += [f"\n{first}", *(f" {sentence}" for sentence in more)]
            continue
        told = f"\n  {row.rstrip()}" if is_code else f"\n{flat}"
        if was_layout or (pieces and pieces[-1].endswith((":", "："))):
            pieces[-1] += told
        else:
            pieces.append(told)
    return pieces


def _bare_row(row: str, flat: str) -> str:
    """A row of prose, `flat` on one line, without markup; an item below another stays indented."""
    bare = _MARKUP.sub("", flat) if "**" in flat or flat[0] == "#" else flat
    bare = _LINK.sub(r"\2", bare) if "](" in bare else bare
    return f"  {bare}" if row[:2].isspace() and _LIST_MARK.match(row) else bare


def joined(pieces: Sequence[str]) -> str:
    """The text that `pieces` are of."""
    return "".join(pieces).strip()


def telling_of(pieces: Sequence[str], chars: int) -> str:
    """The whole text, or those of its pieces that say most in about `chars`.

    Names, values and code say what came of something; an announcement says nothing. "" where no
    piece is short enough.
    """
    if sum(map(len, pieces)) <= chars:
        return joined(pieces)
    worths = list(map(_worth, pieces))
    is_row = "\n" not in pieces[0][1:]
    if worths[0] >= 0 and is_row and len(pieces[0]) >= chars:
        return f"{to_last_space(pieces[0][:chars]).strip()} …"
    if worths[0] >= 0:
        worths[0] = _MOST_TELLING + 1  # an answer begins with what it says
    chosen: list[int] = []
    left = chars
    for at in sorted(range(len(pieces)), key=lambda at: (-worths[at], at)):
        if worths[at] >= 0 and len(pieces[at]) < left:
            chosen.append(at)
            left -= len(pieces[at]) + 2
    return _with_gaps(pieces, sorted(chosen), " …")


def _with_gaps(pieces: Sequence[str], chosen: Sequence[int], gap: str) -> str:
    told, before = "", -1
    for at in chosen:
        told += f"{gap}{pieces[at]}" if told and at > before + 1 else pieces[at]
        before = at
    return told.strip()


def _worth(piece: str) -> int:
    """How much a piece names; -1 for one that says nothing by itself: a question, a heading."""
    mark = _LIST_MARK.match(piece)
    bare = piece[mark.end() :] if mark else piece
    names = len(_TELLING.findall(bare))
    is_heading = mark is None and piece[0] == "\n" and piece[-1] not in ".!。！"
    is_empty = piece[-1] in "?？" or (not names and (piece[-1] in ":：" or is_heading))
    return -1 if is_empty or len(bare) < _LEAST_PIECE_CHARS else min(names, _MOST_TELLING)


def is_telling(text: str) -> bool:
    """Whether `text` names anything: code, a value, a file."""
    return _TELLING.search(text) is not None


def head_of(text: str, chars: int) -> str:
    """`text`, or its beginning of about `chars` where it is longer, cut where a sentence ends."""
    if len(text) <= chars:
        return text
    cut = max(text.rfind(mark, 0, chars) + 1 for mark in (". ", "! ", "? ", "。", "; ", "\n"))
    head = text[:cut] if cut > chars // 2 else to_last_space(text[: chars + 1])[:chars]
    return f"{head} {LEFT_OUT}"


def ends_of(text: str | Sequence[str], chars: int) -> str:
    """The text, or its beginning and its end in about `chars`, cut between sentences or pieces."""
    pieces = _PIECE_START.split(text) if isinstance(text, str) else text
    if sum(map(len, pieces)) <= chars:
        return joined(pieces)
    if len(pieces) < 3 or len(pieces[0]) + len(pieces[-1]) > chars:
        whole = joined(pieces)
        end = whole[len(whole) - chars // 2 :]
        end = end.partition(" ")[2] or end
        head = head_of(whole, chars // 2)
        left_out = len(whole) - len(head.removesuffix(LEFT_OUT).rstrip()) - len(end)
        return whole if left_out <= len(LEFT_OUT) else f"{head} {end}"
    inwards = [at for nth in range(len(pieces) // 2 + 1) for at in (nth, len(pieces) - 1 - nth)]
    sizes_chars = accumulate(len(pieces[at]) for at in inwards)
    chosen = (at for at, size in zip(inwards, sizes_chars, strict=True) if size <= chars)
    return _with_gaps(pieces, sorted(chosen), f" {LEFT_OUT}")

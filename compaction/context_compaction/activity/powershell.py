"""What a command of PowerShell does to files, by its verb and the form of its expressions."""

import re
from collections.abc import Sequence

# By PowerShell's approved verbs the name of a cmdlet says that it changes nothing.
_READING = re.compile(
    r"(?:Compare|Find|Get|Group|Join|Measure|Read|Resolve|Select|Show|Sort|Split|Test|Where)"
    r"-[A-Z]\w*|ConvertFrom-\w+|Format-(?:List|Table)|Write-(?:Error|Host|Output)"
)
_WRITING = re.compile(
    r"(?:Set|Add|Clear)-Content|(?:Copy|Move|Remove|Rename|New)-Item|Out-File|Export-\w+|Tee-Object",
    re.IGNORECASE,
)
# They run what stands between braces.
_BLOCKS = frozenset({
    "ForEach-Object", "Where-Object", "foreach", "%", "?", "if", "try", "while", "for",
})  # fmt: skip
_METHOD_WRITES = re.compile(
    r"::(?:Write|Append|Delete|Move|Copy|Replace|Create|Open)\w*\(|\.(?:Save|Delete|MoveTo|CopyTo)\("
)
# A shell would run what a variable names.
_VALUE = re.compile(r"\$\w+[.\[]|\[\w[\w.]*\]")
_OPERATORS = frozenset({
    "+=", "-eq", "-ne", "-gt", "-ge", "-lt", "-le", "-like", "-notlike", "-match", "-notmatch",
    "-replace", "-split", "-join", "-contains", "-in", "-f", "-is", "-as", "-and", "-or",
})  # fmt: skip
# A parameter that takes a file, behind a colon: `-Path:a.py`.
_NAMED = re.compile(r"-(?:\w*Path|Destination|NewName):(.+)", re.IGNORECASE)
_GIVEN = re.compile(r"[\w$./:*-]+")
_FILE = re.compile(r"\.\w|\A\$\w+\Z")


def only_reads(program: str) -> bool:
    """Whether `program` is a cmdlet that changes no file."""
    return _READING.fullmatch(program) is not None


def command_in(words: Sequence[str]) -> list[str]:
    """The command that `words` run: of a block what stands in it, of an assignment its value."""
    kept = list(words)
    while kept:
        if kept[0] in _BLOCKS and "{" in kept:
            kept = kept[kept.index("{") + 1 :]
            # Of several commands in blocks one that writes is told.
            writes = (n for n, word in enumerate(kept) if _WRITING.fullmatch(word))
            kept = kept[next(writes, 0) :]
        elif kept[0].startswith("$") and kept[1:2] == ["="]:
            kept = kept[2:]
        else:
            break
    while kept and kept[-1] == "}":
        kept.pop()
    return kept


def is_expression(words: Sequence[str]) -> bool:
    """Whether `words` are no command, but a value and what its methods do."""
    if not words or not words[0].startswith(("$", "[")):
        return False
    return _VALUE.match(words[0]) is not None or (
        words[0][1:].isidentifier() and (len(words) == 1 or words[1] in _OPERATORS)
    )


def changed_files(program: str, words: Sequence[str], names: Sequence[str]) -> list[str] | None:
    """The files that an expression or a cmdlet may change; None for any other program.

    A name with a variable may be that of any file.

    Args:
        program: The program, or how the expression begins.
        words: All words.
        names: Those of them that are arguments and no options.
    """
    if is_expression(words):
        line = " ".join(words).replace("\\", "/")
        method = _METHOD_WRITES.search(line)
        given = _GIVEN.findall(line, method.end()) if method else ()
        return list(filter(_FILE.search, given)) or ["."] if method else []
    if _WRITING.fullmatch(program) is None:
        return None
    names = [*names, *(found[1] for word in words if (found := _NAMED.fullmatch(word)))]
    if program == "Copy-Item" and len(names) > 1:
        names = names[-1:]
    # What it is given by a pipe is not told.
    return list(names) or ["."]

"""Command lines in parts: what a line does, short, without the script around it."""

import re
from dataclasses import dataclass

from context_compaction.activity.digest import acts_outside
from context_compaction.activity.shell_words import HEREDOC, QUOTED, without_comments

_LABEL_CHARS = 120
_COMMAND_CHARS = 8_000
_HEREDOC_TEXT = re.compile(r'"\$\(cat ' + HEREDOC.pattern + r'\s*\)"', re.DOTALL)
# The parts of a command line; what stands in quotes is never parted.
_PARTS = re.compile(
    r"(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|[^'\"\\;&|\n]|(?<!&)&(?!&)|(?<!\|)\|(?!\|)|['\"\\])++",
    re.DOTALL,
)
# What precedes a pipe or a redirection, which count outside of quotes alone.
_UNPIPED = re.compile(r"(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|(?!2?>|\|).)*+", re.DOTALL)
# Parts that tell nothing of what it is for, and the texts in it.
_SCRIPT = re.compile(
    r"cd |sed -i|(?:cat|tee) .{0,80}>|\w+=|\$[\w:]+ *=|set |(?:for|while|if) |foreach\b|[{}()]"
    r"|(?:do|then|else)\Z|done|fi\b|sleep |printf |git add|python3? -\s*\Z"
)
# What precedes a program: the words of a loop, values for it alone, the time that it has, and in
# PowerShell where its output goes.
_GIVEN = re.compile(
    r"\A(?:(?:[A-Za-z_]\w*=(?:'[^']*'|\"[^\"]*\"|(?!\$\()[^\s'\"]*)"
    r"|timeout \S+|nice|time|do|then|\$\w+ =(?= [a-z][\w-]* [\w-])) )+"
)
_GIT_FOLDER = re.compile(r"\bgit -C \S+ ")
# What it sends, and where to.
_REQUEST = re.compile(r"\bcurl\b.*?(?:-X ?|--request[ =])([A-Z]+)\b|\bcurl\b")
_ADDRESS = re.compile(r"https?://[^\s'\"|)]+")
# Commands that only look; what they find may speak of errors without being one.
_LOOK = re.compile(
    r"\A(?:ls|cat|nl|grep|rg|find|head|tail|sed -n|pwd|echo|wc|which|tree|stat|diff|env|Write-Host|"
    r"md5(?:sum)?|git (?:status|diff|log|show|branch(?! -[dD])|tag -l|fsck|rev-parse|ls-files"
    r"|cat-file|reflog|blame|count-objects|worktree list|stash list|config --(?:list|get))"
    r"|gh \w+ (?:view|checks|watch)|xxd|lsof|[\w-]+ (?:[\w-]+ )?(?:status|wait|capture|list))\b"
)


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What a command line does."""

    told: tuple[str, ...]  # its parts that are no script, cd or look; the last where all are
    lasting: tuple[str, ...] = ()  # those that change something outside the conversation
    has_look: bool = False  # at something beside `told`

    @property
    def keys(self) -> tuple[str, ...]:
        """What it does, without pipes and redirections: the same for each run."""
        return tuple(map(bare_command, self.told))


def command_line(text: str) -> CommandLine:
    """The parts of the command line `text`."""
    bare = without_comments(without_heredocs(text))
    parts = [part.strip() for part in _PARTS.findall(bare) if part.strip()]
    parts = [_GIT_FOLDER.sub("git ", _GIVEN.sub("", part)) for part in parts]
    lasting = tuple(part for one in parts if (part := _done(one)) and acts_outside(part))
    parts = [part for part in parts if not _SCRIPT.match(part)] or parts or [""]
    told = tuple(flat(part) for part in parts if not is_look(part))
    return CommandLine(told or (flat(parts[-1]),), lasting, 0 < len(told) < len(parts))


def _done(part: str) -> str:
    """What of a part may change something: of a look, which does not, what is behind its pipe."""
    if not is_look(part):
        return part
    unquoted = QUOTED.sub(lambda text: "'" * len(text[0]), part)
    return part[len(unquoted.partition("|")[0]) + 1 :].strip()


def bare_command(part: str) -> str:
    """A part of a command line on one line, without pipes and redirections; long texts are cut."""
    head = _UNPIPED.match(part)
    bare = head[0].strip() if head else part
    if len(bare) > _LABEL_CHARS:
        chars = _LABEL_CHARS * 2 // 3
        bare = QUOTED.sub(lambda text: f"{one_line(text[0][:-1], chars)}{text[0][-1]}", bare)
    return one_line(bare)


def bare_effect(part: str) -> str:
    """The same; of a request that is too long for a line its method and its address."""
    bare = bare_command(part)
    sent, to = _REQUEST.search(flat(part)), _ADDRESS.search(flat(part))
    return f"curl -X {sent[1] or 'POST'} {to[0]}" if "…" in bare and sent and to else bare


def without_heredocs(command: str) -> str:
    """The first 8,000 characters of a command line, without its heredocs."""
    return HEREDOC.sub("", _HEREDOC_TEXT.sub("…", command[:_COMMAND_CHARS]))


def is_look(part: str) -> bool:
    """Whether a command changes and tries nothing."""
    return _LOOK.match(part) is not None


def is_nameless(bare: str) -> bool:
    """Whether a bare command is a script: nothing tells what it does."""
    return bare.endswith(" -") or _SCRIPT.match(bare) is not None


def flat(text: str) -> str:
    """The beginning of `text` on one line."""
    return " ".join(text[: _LABEL_CHARS * 4].split())


def one_line(text: str, chars: int = _LABEL_CHARS) -> str:
    """`text` on one line of so many characters at most."""
    line = flat(text)
    return line if len(line) <= chars else f"{to_last_space(line[: chars - 1])} …"


def to_last_space(text: str) -> str:
    """`text` without the word that it ends in, unless that is most of it."""
    at = text.rfind(" ")
    return text[:at] if at > len(text) // 2 else text

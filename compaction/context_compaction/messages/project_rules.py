"""Rules of the project that a host hands over in the user's name: AGENTS.md, CLAUDE.md, GEMINI.md.

Codex, Claude Code, Gemini CLI and their kin put such files into a message at the beginning of the
conversation, or one rule where it is broken, and send them no other way. They bind like a system
prompt, and nobody typed them. The frame that the host puts around them tells, around a text as a
whole: a quotation of it is none, nor is what a tool answered. Pure.
"""

import re
from collections.abc import Container, Iterator
from dataclasses import replace

from context_compaction.messages import placeholders
from context_compaction.messages.model import Author, Message, Messages, Text
from context_compaction.messages.speakers import passages

# The frames, each from the beginning of a text to its end.
_FRAME = re.compile(
    r"\s*(?:# (?P<file>[\w.-]{1,80}) instructions\b[^\n]{0,400}\s+(?=<INSTRUCTIONS>))?"
    r"<(?P<tag>INSTRUCTIONS|system-reminder|user_instructions|user_rules|project_instructions"
    r"|project_context|repository_instructions|workspace_rules|always_applied_workspace_rules"
    r"|session_context|system-interrupt)(?=[\s>])",
    re.IGNORECASE,
)
# Oh My Pi interrupts an answer with the one rule that it breaks, and names it.
_ONE_RULE = re.compile(r"[^>\n]{0,400}? rule=\"([^\"\n]{1,80})\"")
_SETTING_UP = re.compile(r"\s*This is (?:the )?[^\n.]{1,40}\. We are setting up the context for ")
# What some frames hold besides rules too; those begin with one of these.
_FRAMES_OF_ALL = frozenset({"system-reminder", "session_context"})
_MEMORY = re.compile(r"# claudeMd\b|Codebase and user instructions are shown below")
_CONTENTS = re.compile(
    r"Contents of ([^\n]{0,400}?(?:(?:CLAUDE|AGENTS|GEMINI)(?:\.\w+)?\.md|/rules/[^/\n]{1,120}))"
    r"(?: \([^\n]{1,200}\))?:"
)
_LOADED = ("--- Context from: ", "<loaded_context>")
_HEAD_CHARS = 600
_SCANNED_CHARS = 100_000


def with_project_rules(messages: Messages, *, is_posed: bool) -> Messages:
    """`messages`, of every text of project rules the newest with the author "project".

    What precedes it of the same kind is the host's. A message in which nobody else speaks is the
    project's as a whole.

    Args:
        messages: The list, with the authors that are known.
        is_posed: Whether tools answer in the user's name: then only a text counts that no tool can
            have written, which is one before the assistant has spoken.
    """
    places = list(_places(messages, is_posed=is_posed))
    if not places:
        return messages
    newest = {kind: (at, number) for kind, at, number in places}
    out = list(messages)
    for kind, at, number in places:
        is_newest = newest[kind] == (at, number)
        out[at] = said_by("project" if is_newest else "host", out[at], {number})
    for at in {at for _, at, _ in places}:
        out[at] = _as_a_whole(out[at])
    return tuple(out)


def said_by(author: Author, message: Message, numbers: Container[int]) -> Message:
    """`message` with `author` as that of the texts among its blocks `numbers`."""
    blocks = (
        replace(block, author=author) if number in numbers and isinstance(block, Text) else block
        for number, block in enumerate(message.blocks)
    )
    return replace(message, blocks=tuple(blocks))


def rules_kind_of(block: Text) -> str | None:
    """The name of the file whose rules `block` holds, or of their frame; None for other texts."""
    text = block.text
    if block.author == "project" and (kind := placeholders.rules_kind(text)):
        return kind
    if block.author not in (None, "host", "project"):
        return None
    if _SETTING_UP.match(text):
        return "GEMINI.md" if _is_loaded(text) else None
    frame = _FRAME.match(text)
    if frame is None or not text.rstrip().lower().endswith(f"</{frame['tag'].lower()}>"):
        return None
    if frame["tag"].lower() not in _FRAMES_OF_ALL:
        rule = _ONE_RULE.match(text, frame.end())
        return rule[1] if rule else frame["file"] or frame["tag"]
    if _SETTING_UP.match(text, frame.end() + 1):
        return "GEMINI.md" if _is_loaded(text) else None
    if _MEMORY.search(text, 0, _HEAD_CHARS):
        return "CLAUDE.md"
    contents = _CONTENTS.search(text, 0, _HEAD_CHARS)
    return contents[1] if contents else None


def _places(messages: Messages, *, is_posed: bool) -> Iterator[tuple[str, int, int]]:
    """The kind of each text of rules, the position of its message, and of the block in that."""
    for at, message in enumerate(messages):
        if is_posed and message.role == "assistant":
            return
        for number, block in enumerate(message.blocks if message.role == "user" else ()):
            if isinstance(block, Text) and (kind := rules_kind_of(block)):
                yield kind, at, number


def _is_loaded(text: str) -> bool:
    return any(mark in text[:_SCANNED_CHARS] for mark in _LOADED)


def _as_a_whole(message: Message) -> Message:
    """`message`, the project's where it has its rules, and no word of the user's or of a tool's."""
    texts = [block for block in message.blocks if isinstance(block, Text)]
    is_mixed = len(texts) < len(message.blocks) or any(a != "host" for a, _ in passages(message))
    if is_mixed or all(text.author != "project" for text in texts):
        return message
    return said_by("project", message, range(len(texts)))

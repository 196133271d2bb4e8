"""Rules of the project that a host handed over as a message: whole, or as an extract. Pure.

They stay at any cut, in their own place and as the host's own object, while they have room in their
share of the limit. Longer ones are archived like a large output, and of them stays what binds by
its words in each section, then what follows their beginning.
"""

import re
from collections.abc import Collection, Iterator
from itertools import zip_longest

from context_compaction.layers.cut_point import is_preserved, preserved_part
from context_compaction.layers.preview import extract
from context_compaction.layers.replace_blocks import Place, Replacement, replace_blocks
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Blob, Step, make_blob
from context_compaction.messages.model import Messages, Text, is_rules
from context_compaction.messages.speakers import rules_kind_of, with_author
from context_compaction.summarizers.instructions.find import has_sign, instructions_in
from context_compaction.summarizers.instructions.superseded import UserInstruction
from context_compaction.tokens.counter import MessageCounter

RULES_LAYER = "project_rules"
_SECTION = re.compile(r"^(?=#{1,6} )", re.MULTILINE)
# Of what the limit leaves beside system messages.
_SHARE = 0.2
# In less no rule is worth its frame.
_LEAST_TOKENS = 120


def fixed_tokens_of(messages: Messages, limit_tokens: int, count: MessageCounter) -> int:
    """The most tokens of the messages that stay at any cut."""
    fixed_tokens = rules_tokens = 0
    for message in filter(is_preserved, messages):
        kept_tokens = count.message(preserved_part(message) or message)
        if any(map(is_rules, message.blocks)):
            rules_tokens += kept_tokens
        else:
            fixed_tokens += kept_tokens
    return fixed_tokens + min(rules_tokens, _most_tokens(limit_tokens - fixed_tokens))


def shorten_rules(
    messages: Messages,
    limit_tokens: int,
    count: MessageCounter,
    *,
    pinned: Collection[int],
    lets_go: bool,
) -> Step:
    """`messages` with the project's rules within their share of the limit.

    What has no room for an extract, and all where the caller `lets_go`, is a text of the host's
    like others, which a summary replaces. What is in messages that are `pinned` stays whole.
    """
    places = [
        (Place(at, number), block)
        for at, message in enumerate(messages)
        if message.index not in pinned
        for number, block in enumerate(message.blocks)
        if is_rules(block)
    ]
    if not places:
        return Step(messages)
    others = (m for m in messages if is_preserved(m) and not any(map(is_rules, m.blocks)))
    left_tokens = _most_tokens(limit_tokens - sum(map(count.message, others)))
    chosen: dict[Place, Replacement] = {}
    gone: list[Place] = []
    for place, block in places:
        tokens = count.block(block)
        if tokens > left_tokens or lets_go:
            shorter = None if lets_go else _shortened(block, left_tokens, count)
            if shorter is None:
                gone.append(place)
                continue
            chosen[place] = shorter
            tokens -= shorter.saved_tokens
        left_tokens -= tokens
    step = replace_blocks(messages, chosen, count, layer=RULES_LAYER)
    out = list(step.messages)
    for at, number in gone:
        out[at] = with_author("host", out[at], {number})
    return Step(tuple(out), step.edits, step.blobs) if gone else step


def _most_tokens(left_tokens: int) -> int:
    return int(max(0, left_tokens) * _SHARE)


def _shortened(block: Text, most_tokens: int, count: MessageCounter) -> Replacement | None:
    """An extract of `block`; None where it has no room, or would not be smaller."""
    kind = rules_kind_of(block)
    if kind is None or most_tokens < _LEAST_TOKENS:
        return None
    blobs: tuple[Blob, ...] = ()
    kept = placeholders.ids_in_placeholder(block.text)
    if kept:
        text, marker = placeholders.preview_in(block.text), block.text
    else:
        tool_name = placeholders.RULES_TOOL + kind
        text, blobs = block.text, (make_blob(block.text, tool_name=tool_name),)
        marker = placeholders.persisted(blobs, "", tool_name, len(text))
    frame = placeholders.with_preview(marker, "")
    shown = extract(
        "\n".join(line for line in text.split("\n") if line.strip()),  # a gap costs a line too
        most_tokens - count.text(frame),
        measure=count.text,
        first=(text.partition("\n")[0], *_binding_in(text)),
    )
    shorter = Text(placeholders.with_preview(marker, shown), author="project")
    saved_tokens = count.block(block) - count.block(shorter)
    if saved_tokens <= 0:
        return None
    return Replacement(shorter, blobs, saved_tokens, "persisted", note=kind, kept=kept)


def _binding_in(text: str) -> Iterator[str]:
    """The lines of rules that bind, of every section what binds first before what binds next.

    One long section would leave no room for the others, and nobody knows which one the work needs.
    Then, in the same order, what looks typed: commands and the like.
    """
    sections = [*_sections_of(text)]
    binding = ((head, [item for item in said if has_sign(item)]) for head, said in sections)
    typed = ((head, [item for item in said if not item.is_pasted]) for head, said in sections)
    for parts in (binding, typed):
        ranked = ((head, sorted(said, key=lambda item: -item.rank)) for head, said in parts if said)
        for row in zip_longest(*([head, *(item.text for item in said)] for head, said in ranked)):
            yield from filter(None, row)


def _sections_of(text: str) -> Iterator[tuple[str, tuple[UserInstruction, ...]]]:
    """The sections of `text`, each with its heading, "" above the first, and its sentences."""
    for part in _SECTION.split(text):
        head, _, body = part.partition("\n")
        heading, body = (head, body) if _SECTION.match(head) else ("", part)
        yield heading, instructions_in(body)

"""Fit project rules, which a host passes as a message, into their share of the limit.

Project rules that fit survive every cut unchanged. Longer rules are archived like a large output,
and an extract replaces them. It starts with the binding sentences of each section.
"""

import re
from collections.abc import Collection, Iterator
from itertools import zip_longest

from context_compaction.layers.cut_point import is_preserved, preserved_part
from context_compaction.layers.preview import extract
from context_compaction.layers.replace_blocks import Place, Replacement, replace_blocks, smaller
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Blob, Step, make_blob
from context_compaction.messages.model import Messages, Text, is_rules
from context_compaction.messages.speakers import rules_kind_of, with_author
from context_compaction.summarizers.instructions.find import has_rule_sign, instructions_in
from context_compaction.tokens.counter import MessageCounter

RULES_LAYER = "project_rules"
_SECTION = re.compile(r"^(?=#{1,6} )", re.MULTILINE)
# Share of the limit for project rules, after other preserved messages are subtracted.
_SHARE = 0.2
# With less room no extract is written, because its frame would take most of the tokens.
_MIN_EXTRACT_TOKENS = 120


def preserved_tokens(messages: Messages, limit_tokens: int, count: MessageCounter) -> int:
    """Return an upper limit for the tokens of the messages that survive every cut."""
    fixed_tokens = rules_tokens = 0
    for message in filter(is_preserved, messages):
        tokens = count.message(preserved_part(message) or message)
        if any(map(is_rules, message.blocks)):
            rules_tokens += tokens
        else:
            fixed_tokens += tokens
    return fixed_tokens + min(rules_tokens, _share_of(limit_tokens - fixed_tokens))


def fit_project_rules(
    messages: Messages,
    limit_tokens: int,
    count: MessageCounter,
    *,
    pinned: Collection[int],
    removes_all: bool,
) -> Step:
    """Return `messages` with the project rules within their share of the limit.

    Rules that do not fit even as an extract become ordinary host text, which a summary replaces.
    With `removes_all`, all rules do. Rules in `pinned` messages, given by index, stay complete.
    """
    places = [
        (Place(index, number), block)
        for index, message in enumerate(messages)
        for number, block in enumerate(message.blocks)
        if is_rules(block) and message.index not in pinned
    ]
    if not places:
        return Step(messages)
    other_messages = (m for m in messages if is_preserved(m) and not any(map(is_rules, m.blocks)))
    remaining_tokens = _share_of(limit_tokens - sum(map(count.message, other_messages)))
    shortened: dict[Place, Replacement] = {}
    removed: list[Place] = []
    for place, block in places:
        tokens = count.block(block)
        if tokens > remaining_tokens or removes_all:
            extract_of_rules = None if removes_all else _shortened(block, remaining_tokens, count)
            if extract_of_rules is None:
                removed.append(place)
                continue
            shortened[place] = extract_of_rules
            tokens -= extract_of_rules.saved_tokens
        remaining_tokens -= tokens
    step = replace_blocks(messages, shortened, layer=RULES_LAYER)
    edited = list(step.messages)
    for index, number in removed:
        edited[index] = with_author("host", edited[index], {number})
    return Step(tuple(edited), step.edits, step.blobs) if removed else step


def _share_of(remaining_tokens: int) -> int:
    return int(max(0, remaining_tokens) * _SHARE)


def _shortened(block: Text, max_tokens: int, count: MessageCounter) -> Replacement | None:
    """Return an extract of `block`; None if it has no room or would not be smaller."""
    kind = rules_kind_of(block)
    if kind is None or max_tokens < _MIN_EXTRACT_TOKENS:
        return None
    blobs: tuple[Blob, ...] = ()
    archived_ids = placeholders.ids_in_placeholder(block.text)
    if archived_ids:
        text, marker = placeholders.preview_in(block.text), block.text
    else:
        tool_name = placeholders.RULES_TOOL + kind
        text, blobs = block.text, (make_blob(block.text, tool_name=tool_name),)
        marker = placeholders.persisted(blobs, " ", tool_name, len(text))
    frame = placeholders.with_preview(marker, "")
    shown = extract(
        "\n".join(line for line in text.split("\n") if line.strip()),
        max_tokens - count.text(frame),
        measure=count.text,
        first=(text.partition("\n")[0], *_binding_in(text)),
    )
    shorter = Text(placeholders.with_preview(marker, shown), author="project")
    return smaller(block, shorter, blobs, count, "persisted", note=kind, archived_ids=archived_ids)


def _binding_in(text: str) -> Iterator[str]:
    """Yield the binding sentences of rules, then other sentences that a person typed.

    Sections alternate, because one long section would leave no room for the next sections.
    """
    sections: list[tuple[str, list[str], list[str]]] = []
    for part in _SECTION.split(text):
        head, _, body = part.partition("\n")
        heading, body = (head, body) if _SECTION.match(head) else ("", part)
        items = sorted(instructions_in(body), key=lambda item: -item.rank)
        binding = [item.text for item in items if has_rule_sign(item)]
        typed = [item.text for item in items if not item.is_pasted]
        sections.append((heading, binding, typed))
    for number in (1, 2):
        rows = ([section[0], *section[number]] for section in sections if section[number])
        for row in zip_longest(*rows):
            yield from filter(None, row)

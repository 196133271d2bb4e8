"""A newest request that leaves no room for anything else gives way to an extract. Pure.

People paste: a log, a file, the output of a tool that their host has no other way to hand over.
Such a request is archived like a large output. Of it stay, line by line, how it begins, its last
paragraph and what surely binds, then what follows its beginning. What a host framed in it follows
the user's own words, as far as there is room.
"""

from collections.abc import Iterator
from functools import partial

from context_compaction.layers.preview import extract, words_sought
from context_compaction.layers.replace_blocks import Place, Replacement, replace_blocks
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit, Step, make_blob
from context_compaction.messages.model import Message, Messages, Text
from context_compaction.messages.speakers import LABELS, author_of, passages, user_texts
from context_compaction.summarizers.instructions.find import SURE_RANK, find_instructions
from context_compaction.summarizers.instructions.typed_text import sentences_of
from context_compaction.tokens.counter import MessageCounter

REQUEST_LAYER = "request"
# For a text that its host hands over in the user's name.
_POSED_TOOL = "text in the user's name"
_LEAST_TOKENS = 40


def shorten_request(messages: Messages, *, count: MessageCounter, max_tokens: int) -> Step:
    """Replace the longest text of the newest request by an extract.

    The request counts about `max_tokens` then. One that counts no more, or would not get smaller,
    stays as it is.
    """
    places = [at for at, message in enumerate(messages) if placeholders.is_request(message)]
    if not places or count.message(messages[places[-1]]) <= max_tokens:
        return Step(messages)
    request = messages[places[-1]]
    texts = [(at, block) for at, block in enumerate(request.blocks) if isinstance(block, Text)]
    at, block = max(texts, key=lambda item: count.block(item[1]), default=(0, Text("")))
    if not block.text or placeholders.is_long_request(block.text):
        return Step(messages)
    is_typed = author_of(request, block) == "user"
    tool_name = placeholders.REQUEST_TOOL if is_typed else _POSED_TOOL
    blob = make_blob(block.text, tool_name=tool_name)
    frame = placeholders.persisted((blob,), "", tool_name, len(block.text))
    room_tokens = max_tokens - (count.message(request) - count.block(block)) - count.text(frame)
    if is_typed:
        shown = _extract_of(Message("user", (block,)), room_tokens, count)
    else:
        shown = extract(block.text, room_tokens, measure=count.text)
    text = placeholders.persisted((blob,), shown, tool_name, len(block.text))
    marker = Text(text, author="user" if is_typed else "compaction")
    saved_tokens = count.block(block) - count.block(marker)
    if saved_tokens <= 0:
        return Step(messages)
    done = Replacement(marker, (blob,), saved_tokens, "persisted", note="the newest request")
    return replace_blocks(messages, {Place(places[-1], at): done}, count, layer=REQUEST_LAYER)


def is_of_request(edit: Edit) -> bool:
    """Whether `edit` replaced the newest request by an extract."""
    return edit.layer == REQUEST_LAYER


def _extract_of(said: Message, room_tokens: int, count: MessageCounter) -> str:
    """What stays of a text that the user typed; each line of somebody else's names its author."""
    typed = "\n".join(text.strip() for text in user_texts(said))
    first = (_beginning(typed, room_tokens * 2 // 3, count), *_said_first(said, typed))
    shown = extract(typed, room_tokens, measure=count.text, first=first)
    for author, text in passages(said):
        left_tokens = room_tokens - count.text(shown)
        if author != "user" and left_tokens > _LEAST_TOKENS:
            label = LABELS[author]
            told = extract(
                text.strip(),
                left_tokens,
                measure=partial(_labelled_tokens, count=count, label=label),
                sought=words_sought(typed),
            )
            shown = "\n".join(filter(None, (shown, _labelled(told, label))))
    return shown


def _labelled(text: str, label: str) -> str:
    return "\n".join(f"{label}{line}" for line in text.splitlines())


def _labelled_tokens(text: str, *, count: MessageCounter, label: str) -> int:
    return count.text(_labelled(text, label))


def _beginning(text: str, tokens: int, count: MessageCounter) -> str:
    """The first lines of `text` within `tokens`, on one line."""
    told: list[str] = []
    for line in text.splitlines():
        tokens -= count.text(line) + 1
        if tokens < 0:
            break
        told += line.split()
    return " ".join(told)


def _said_first(said: Message, typed: str) -> Iterator[str]:
    """What the user says at the end of `typed`, and what surely binds."""
    yield from (
        sentence.text
        for sentence in sentences_of(typed)
        if sentence.is_last and not sentence.is_pasted
    )
    standing = find_instructions((said,)).standing
    yield from (item.text for item in standing if item.rank >= SURE_RANK)

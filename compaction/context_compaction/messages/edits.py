"""What a layer gives back: the messages, what it changed, and what must be kept."""

import hashlib
from dataclasses import dataclass

from context_compaction.messages.model import Messages

OUTPUT_ID_PREFIX = "o_"
OUTPUT_ID_HEX_DIGITS = 24  # 96 bits of SHA-256; the full hash stands in the archive's record


def output_id_of(data: bytes) -> str:
    """The content address of `data`: known before anything is written."""
    digest = hashlib.sha256(data).hexdigest()
    return OUTPUT_ID_PREFIX + digest[:OUTPUT_ID_HEX_DIGITS]


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes that leave the context and must stay readable under `output_id`.

    Text is UTF-8 with lone surrogates passed through ("surrogatepass"). A part that is not text
    (an image, a document, an unknown block) is its JSON, of media type "application/json".
    `seq` is the number of the archived message that held it, where that is known: its time is the
    output's.
    """

    output_id: str
    data: bytes
    media_type: str = "text/plain"
    tool_name: str | None = None
    call_id: str | None = None
    seq: int | None = None


def make_blob(
    text: str,
    *,
    media_type: str = "text/plain",
    tool_name: str | None = None,
    call_id: str | None = None,
) -> Blob:
    """The blob that keeps `text`, byte for byte."""
    data = text.encode("utf-8", "surrogatepass")
    return Blob(output_id_of(data), data, media_type, tool_name, call_id)


@dataclass(frozen=True, slots=True)
class Edit:
    """One change that a layer made.

    Attributes:
        layer: Name of the layer.
        action: What it did, one word: "persisted", "cleared", "clipped", "summarized", "dropped",
            "restored", "outlined", "named", "stripped", "repaired", "offloaded", "collapsed",
            "added".
        index: Position in the list that came in, from 0; None for something added.
        tokens_before: Estimated tokens of what was there.
        tokens_after: Estimated tokens of what is there now.
        pointers: Where the original can be read: output ids, or `transcript://` ranges.
        tool_name: The tool whose call or result was changed, if one was.
        note: A short reason, for people.
    """

    layer: str
    action: str
    index: int | None
    tokens_before: int
    tokens_after: int
    pointers: tuple[str, ...] = ()
    tool_name: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of one layer. `messages` is the very input object where nothing was changed."""

    messages: Messages
    edits: tuple[Edit, ...] = ()
    blobs: tuple[Blob, ...] = ()


def first_difference(before: Messages, after: Messages) -> int:
    """The first position that holds another object; the shorter length where none does."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((at for at, (a, b) in pairs if a is not b), min(len(before), len(after)))

"""The outcome of a layer: the messages, its edits, and the content to archive."""

import hashlib
from dataclasses import dataclass

from context_compaction.messages.model import Messages

OUTPUT_ID_PREFIX = "o_"
# 96 bits of the SHA-256; the archive stores the full hash.
OUTPUT_ID_HEX_DIGITS = 24


def output_id_of(data: bytes) -> str:
    """Return the ID of the output `data`: a hash, so it is known before anything is written."""
    digest = hashlib.sha256(data).hexdigest()
    return OUTPUT_ID_PREFIX + digest[:OUTPUT_ID_HEX_DIGITS]


@dataclass(frozen=True, slots=True)
class Blob:
    """Content that leaves the context and stays readable under `output_id`.

    Attributes:
        output_id: The ID, which is a hash of `data`.
        data: The bytes. Text is UTF-8 with lone surrogates passed through ("surrogatepass"). An
            image, a document or an unknown block is stored as its JSON.
        media_type: "text/plain", or "application/json" for a part that is not text.
        tool_name: Name of the tool that produced the content.
        call_id: ID of the call that produced the content.
        seq: Number of the archived message that contained it. The output gets its time.
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
    """Return the blob that stores `text`, byte for byte."""
    data = text.encode("utf-8", "surrogatepass")
    return Blob(output_id_of(data), data, media_type, tool_name, call_id)


@dataclass(frozen=True, slots=True)
class Edit:
    """A change made by a layer.

    Attributes:
        layer: Name of the layer.
        action: The change in one word: "persisted", "cleared", "clipped", "summarized", "dropped",
            "restored", "named", "stripped", "repaired", "offloaded", "collapsed",
            "added".
        index: Index in the input list, from 0; None for an addition.
        tokens_before: Estimated tokens before the change.
        tokens_after: Estimated tokens after the change.
        pointers: Output IDs or `transcript://` ranges of the original.
        tool_name: Tool of the changed call or result; None for other content.
        note: A short reason for people.
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
    """The outcome of a layer.

    Attributes:
        messages: The new list; the input object if nothing changed.
        edits: The changes.
        blobs: The content to archive.
    """

    messages: Messages
    edits: tuple[Edit, ...] = ()
    blobs: tuple[Blob, ...] = ()


def first_difference(before: Messages, after: Messages) -> int:
    """Return the first index with different objects; the shorter length if there is none."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((index for index, (a, b) in pairs if a is not b), min(len(before), len(after)))

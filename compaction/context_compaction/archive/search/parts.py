"""What an index finds of each record: texts, with what they are about."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from context_compaction.archive.documents import (
    IndexedPart,
    is_own_tool,
    output_parts,
    read_stored,
)
from context_compaction.archive.frames import Blobs
from context_compaction.archive.outputs import StoredOutput, decode_text, info_of
from context_compaction.errors import ArchiveDamagedError, NotFoundError
from context_compaction.messages.model import JsonObject

# BM25 would put a text of three words before any longer one; a text counts as this long at least.
# Measured: LoCoMo's MRR rises from .45 to .48 with 30, own questions stay the same.
MIN_DOC_TERMS = 30


def parts_of_records(
    records: Iterable[tuple[JsonObject, Callable[[], Any]]], blobs: Blobs
) -> Iterator[list[IndexedPart]]:
    """What is found of each record: nothing but messages and outputs.

    A result is found under the paths of its call where both were appended together, as hosts do.

    Args:
        records: Each one's head, and what returns its body.
        blobs: The large contents that bodies name.
    """
    paths: dict[str, tuple[str, ...]] = {}
    for head, body in records:
        try:
            if head["kind"] == "message":
                stored = read_stored(body(), head["format"], head["tools"])
                paths |= stored.called_paths
                about = [path for call in stored.answered_calls for path in paths.get(call, ())]
                yield [IndexedPart(stored.text, paths=tuple(about), is_own=stored.is_own)]
            elif head["kind"] == "output":
                data = StoredOutput(info_of(head, ""), body(), blobs).read_whole()
                about = list(paths.get(head["call"], ()))
                parts = output_parts(decode_text(data) or "")
                is_own = is_own_tool(head["tool"] or "")
                yield [replace(part, paths=tuple(about), is_own=is_own) for part in parts]
            else:
                yield []
        except (ArchiveDamagedError, NotFoundError):
            # A damaged blob hides its own text only; the doctor reports it.
            yield [IndexedPart("")]


def tools_in(head: JsonObject) -> list[str]:
    """The tools of a record: those that a message calls or answers, the one that gave an output."""
    if head["kind"] == "output":
        return [head["tool"]] if head["tool"] else []
    return list(head.get("tools", []))


def role_in(head: JsonObject) -> str:
    """The role under which a record is found."""
    return "tool" if head["kind"] == "output" else head.get("role", "")


def tool_token(tool: str) -> str:
    """The token of the rows of a tool; a hash, as a tool's name may hold anything."""
    name = tool.encode("utf-8", "surrogatepass")
    return "t" + blake2b(name, digest_size=8).hexdigest()

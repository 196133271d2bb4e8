"""Read archives that claude.ai and ChatGPT export: a zip file with `conversations.json`.

Large exports have numbered files, such as `conversations-000.json`. Every message becomes plain
text with its author, because the archive is for reading and search. Texts of tools and hidden texts
of the system are no words of the user.

claude.ai: a list of chats with `uuid`, `name` and `chat_messages`, each with `sender`, `content` or
`text`, `attachments` and `files`. ChatGPT: a list of chats with `conversation_id`, `title` and
`mapping`, a tree of nodes with `parent` and `message`; `current_node` is the newest message that
the user sees, and other leaves end branches that the user left.
"""

import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias

from context_compaction import JsonObject, UnknownFormatError, compact_json, is_list, is_object

# More is refused, because a zip file of 1 MB may contain a gigabyte.
MAX_BYTES = 512 * 1024 * 1024
_MAX_BRANCHES = 50
# No chat is from before 1970 or after 2100.
_LAST_SECONDS = 4_102_444_800
_NAME = re.compile(r"(?:.*/)?conversations(?:-\d+)?\.json")
_START = re.compile(rb'\s*\[\s*\{(?=.{0,60000}?"(?:chat_messages|mapping)"\s*:)', re.DOTALL)
_BETWEEN = frozenset(" \t\r\n,")
_ROLES = {"human": "user", "user": "user", "system": "system"}

# A message in OpenAI's format, and when it was written, in Unix time or None.
Message: TypeAlias = tuple[JsonObject, float | None]


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat of an export.

    Attributes:
        name: The service's ID of the chat, or one that is made from its first message.
        title: Its title; may be empty.
        branches: The messages of each branch; the branch that the user sees is last.
    """

    name: str
    title: str
    branches: list[list[Message]]


def is_export(data: bytes) -> bool:
    """Whether the content of a file is a list of exported chats."""
    return _START.match(data.removeprefix(b"\xef\xbb\xbf")) is not None


def chats_in_zip(path: Path, note: Callable[[str], None]) -> Iterator[Chat]:
    """Yield the chats in an exported archive, and pass a sentence for each skipped part to `note`.

    Raises:
        UnknownFormatError: The file is damaged, or it contains no exported chats.
    """
    problem = f"{path} is not an export of claude.ai or ChatGPT"
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if _NAME.fullmatch(entry.filename)]
            entries = [entry for entry in entries if "__MACOSX" not in entry.filename]
            if not entries:
                raise UnknownFormatError(
                    f"{problem}: it has no conversations.json. Pass the zip file as it was sent."
                )
            for entry in sorted(entries, key=lambda entry: entry.filename):
                with archive.open(entry) as file:
                    data = file.read(MAX_BYTES + 1)
                if len(data) > MAX_BYTES:
                    note(f"{entry.filename} has more than {MAX_BYTES >> 20} MiB and was skipped.")
                    continue
                yield from chats_in(data, note)
    # RuntimeError: a password is needed. NotImplementedError: unknown compression.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError) as error:
        raise UnknownFormatError(
            f"{problem}, or it is damaged: {error}. Download it again, or unpack it and import the "
            "folder."
        ) from error


def chats_in(data: bytes, note: Callable[[str], None]) -> Iterator[Chat]:
    """Yield the chats in the content of a `conversations.json`, one at a time to save memory."""
    text = data.decode("utf-8-sig", "replace")
    if not text.rstrip().endswith("]"):
        note("The file ends before its list of chats ends; all complete chats were read.")
    decoder = json.JSONDecoder()
    index, number = text.find("[") + 1, 0
    while True:
        while text[index : index + 1] in _BETWEEN:
            index += 1
        if text[index : index + 1] in {"]", ""}:
            return
        number += 1
        try:
            value, index = decoder.raw_decode(text, index)
        except (ValueError, RecursionError) as error:
            note(f"Chat {number} and all later ones cannot be read: {error}.")
            return
        chat = _chat(value) if is_object(value) else None
        if chat is None:
            note(f"Chat {number} has no readable messages and was skipped.")
        else:
            yield chat


def _chat(value: JsonObject) -> Chat | None:
    branches: list[list[Message]] = []
    try:
        if is_list(value.get("chat_messages")):
            messages = [_claude_entry(one) for one in value["chat_messages"] if is_object(one)]
            branches = [[entry for entry in messages if entry is not None]]
        elif is_object(value.get("mapping")):
            branches = _chatgpt_branches(value["mapping"], value.get("current_node"))
    except RecursionError:
        return None
    branches = [branch for branch in branches if branch]
    if not branches:
        return None
    names = (value.get(key) for key in ("uuid", "conversation_id", "id"))
    name = next((name for name in names if isinstance(name, str) and name), None)
    if name is None:
        first = compact_json(branches[-1][0][0]).encode("utf-8", "surrogatepass")
        name = f"chat-{blake2b(first, digest_size=8).hexdigest()}"
    return Chat(name, _text(value.get("name")) or _text(value.get("title")), branches)


def _claude_entry(message: JsonObject) -> Message | None:
    blocks = message.get("content")
    texts = [_block_text(block) for block in blocks] if is_list(blocks) else []
    if not any(texts):
        texts = [_text(message.get("text"))]
    for key in ("attachments", "files"):
        files = message.get(key)
        for file in files if is_list(files) else ():
            if is_object(file):
                content = _text(file.get("extracted_content"))
                texts.append(f"[File {_text(file.get('file_name'))}]\n{content}".strip())
    role = _ROLES.get(_text(message.get("sender")), "assistant")
    return _entry(role, texts, message.get("created_at"))


def _block_text(block: Any) -> str:
    if not is_object(block):
        return _text(block)
    kind = _text(block.get("type"))
    if kind in {"text", "thinking"}:
        return _text(block.get(kind))
    shown = _all_text([block.get(key) for key in ("name", "input", "content")])
    return f"[{kind}]\n{shown}" if shown else ""


def _chatgpt_branches(mapping: JsonObject, current: Any) -> list[list[Message]]:
    """Return the messages from the root to each leaf, the leaf that the user sees last."""
    nodes = {key: node for key, node in mapping.items() if is_object(node)}
    parents = {_text(node.get("parent")) for node in nodes.values()}
    leaves = [key for key in nodes if key not in parents and key != current]
    leaves = leaves[-_MAX_BRANCHES:] + ([current] if current in nodes else [])
    entries = {key: _chatgpt_entry(node.get("message")) for key, node in nodes.items()}
    branches: list[list[Message]] = []
    for leaf in leaves or list(nodes)[-1:]:
        path: dict[str, None] = {}  # a damaged tree may have a circle
        key = leaf
        while key in nodes and key not in path:
            path[key] = None
            key = _text(nodes[key].get("parent"))
        found = (entries[key] for key in reversed(path))
        branches.append([entry for entry in found if entry is not None])
    return branches


def _chatgpt_entry(message: Any) -> Message | None:
    if not is_object(message):
        return None
    author: Mapping[str, Any] = message["author"] if is_object(message.get("author")) else {}
    content = message.get("content")
    if is_object(content):  # texts, code, outputs, thoughts, or parts with texts and pictures
        labels = {"content_type", "language", "response_format_name"}
        content = [item for key, item in content.items() if key not in labels]
    texts = [_all_text(content)]
    role = _text(author.get("role"))
    if role == "tool" and any(texts):
        texts.insert(0, f"[{_text(author.get('name')) or 'tool'}]")
    return _entry(_ROLES.get(role, "assistant"), texts, message.get("create_time"))


def _entry(role: str, texts: list[str], time: Any) -> Message | None:
    text = "\n".join(filter(None, texts))
    return ({"role": role, "content": text}, _seconds(time)) if text.strip() else None


def _seconds(value: Any) -> float | None:
    """Return Unix time from a number or from ISO 8601; None for anything else."""
    try:
        is_text = isinstance(value, str)
        seconds = datetime.fromisoformat(value).timestamp() if is_text else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds <= _LAST_SECONDS else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _all_text(value: Any) -> str:
    """Return all strings in a JSON value, each on a line."""
    if isinstance(value, str):
        return value
    items = value.values() if is_object(value) else value if is_list(value) else ()
    return "\n".join(filter(None, map(_all_text, items)))

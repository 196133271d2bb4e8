"""What a resource contains: a transcript, a range of it, receipts, an output, what options mean."""

import re
from collections.abc import Awaitable, Callable
from inspect import cleandoc
from typing import Any

from context_compaction import (
    POLICIES,
    SETTING_NAMES,
    STRATEGY_NAMES,
    Archive,
    JsonObject,
    Policy,
    QueryError,
    SessionInfo,
    Settings,
    compact_json,
)
from mcp_types import TextResourceContents

from mcp_server_compaction.protocol.arguments import short_schema
from mcp_server_compaction.protocol.resources import (
    APP_URIS,
    JSON_LINES_TYPE,
    JSON_TYPE,
    OPTIONS_URI,
    POLICIES_URI,
)
from mcp_server_compaction.protocol.schemas import CompactOptions
from mcp_server_compaction.protocol.sessions import (
    branches_document,
    pointer_to,
    session_document,
)
from mcp_server_compaction.reading.text_source import json_line, open_source

APP_TYPE = "text/html;profile=mcp-app"
# Clients of the handshake era refuse events of more than 1 MiB over HTTP.
MAX_RESOURCE_BYTES = 900_000
_JSON_LINES = re.compile(r"transcript://[^/]+/(?:messages|receipts|context|plan/\d)")
_TRANSCRIPT = re.compile(r"transcript://([A-Za-z0-9_.:-]+)/?\Z")


async def contents_of(
    uri: str, archive_of_caller: Callable[[], Awaitable[Archive]]
) -> list[TextResourceContents]:
    """The contents of a resource; only those that need the archive open it.

    Raises:
        CompactionError: There is no such resource, or it cannot be read.
    """
    documents = {OPTIONS_URI: options_document, POLICIES_URI: policies_document}
    if uri in documents:
        text = compact_json(documents[uri]())
        return [TextResourceContents(uri=uri, mime_type=JSON_TYPE, text=text)]
    if uri in APP_URIS.values():
        from mcp_server_compaction.viewer.web import host_app  # with its templates

        shown_as: dict[str, Any] = {"ui": {"prefersBorder": True, "csp": {}}}
        return [TextResourceContents(uri=uri, mime_type=APP_TYPE, text=host_app(), _meta=shown_as)]
    archive = await archive_of_caller()
    if found := _TRANSCRIPT.match(uri):
        return await _transcript(archive, uri, found.group(1))
    source = await open_source(archive, uri, as_json=True)
    mime_type = JSON_LINES_TYPE if _JSON_LINES.match(uri) else "text/plain"
    # No text of so many characters has fewer bytes.
    text = await source.characters(0, min(source.size_chars, MAX_RESOURCE_BYTES))
    shown = text.encode("utf-8", "backslashreplace")
    if len(text) == source.size_chars and len(shown) <= MAX_RESOURCE_BYTES:
        whole = TextResourceContents(uri=uri, mime_type=mime_type, text=shown.decode())
        told = TextResourceContents(uri=uri, mime_type="text/plain", text=source.gap.strip())
        return [whole, told] if source.gap else [whole]
    page = shown[: shown.rfind(b"\n", 0, MAX_RESOURCE_BYTES) + 1]
    count = page.count(b"\n")
    rest = source.rest_pointer(count)
    if not page or rest is None:
        raise QueryError(
            f"{uri} has {source.size_chars} characters, too many for one answer. Read it in parts "
            "with the tool read_persisted_output."
        )
    note = f"The first {count} of {source.line_count} lines. Go on with {rest}"
    return [
        TextResourceContents(uri=uri, mime_type=mime_type, text=page.decode()),
        TextResourceContents(uri=rest, mime_type="text/plain", text=note),
    ]


async def _transcript(archive: Archive, uri: str, session_id: str) -> list[TextResourceContents]:
    """What is known of the session, and of its newest branch as much as an answer may hold."""
    info = await archive.session_info(session_id)
    branches, count = await archive.branches(session_id)
    document = session_document(info) | branches_document(session_id, branches, count)
    family, _ = await archive.sessions(limit=50, family_of=session_id)
    if len(family) > 1:
        family.sort(key=lambda info: (info.session_id != session_id, info.first_seconds))
        document["family"] = [await _member(archive, info) for info in family]
    about = TextResourceContents(uri=uri, mime_type=JSON_TYPE, text=compact_json(document))
    if not branches or not branches[0].seqs:
        return [about]
    newest = branches[0]
    seqs = newest.seqs[-20:]
    found = await archive.read_messages(session_id, seqs[0], seqs[-1], head=newest.head)
    text, count = "", 0
    for message in reversed(found):
        line = f"{json_line(message.raw)}\n"
        if len(text) + len(line) > 7_000:
            break
        text, count = line + text, count + 1
    if not text:
        return [about]
    uri = pointer_to(session_id, newest, count)
    return [about, TextResourceContents(uri=uri, mime_type=JSON_LINES_TYPE, text=text)]


async def _member(archive: Archive, info: SessionInfo) -> JsonObject:
    """A session of a family, with the tokens that its newest receipt reports."""
    receipts = await archive.receipts(info.session_id, after=-1)
    tokens: JsonObject | None = receipts[-1].get("tokens") if receipts else None
    return session_document(info) | {"tokens": tokens}


def options_document() -> dict[str, Any]:
    """What the `options` of `compact_messages` may hold."""
    defaults = Settings()
    descriptions = _setting_descriptions()
    return {
        "about": "Fields of `options` of the tool compact_messages. All may be left out; an "
        "unknown name is an error.",
        "options": short_schema(CompactOptions)["properties"],
        "constants_of_the_policy": {
            name: {"default": getattr(defaults, name), "description": descriptions[name]}
            for name in SETTING_NAMES
        },
    }


def _setting_descriptions() -> dict[str, str]:
    """The text of each attribute in the docstring of `Settings`."""
    # Python 3.13 takes the indentation from docstrings, earlier ones leave it.
    attributes = cleandoc(Settings.__doc__ or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.+(?:\n {8,}.+)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def policies_document() -> dict[str, Any]:
    """All policies, each with the constants in which it differs from the default."""
    return {
        "about": "Names for `policy` of compact_messages. The constants that "
        "options://compact_messages lists can be changed by name in `options`; those that a policy "
        "does not list have the default.",
        "policies": [
            {
                "name": policy.name,
                "description": policy.description,
                "source": policy.source,
                "layers": list(policy.layers),
                "constants": own_constants(policy),
                "differences_from_source": list(policy.differences),
            }
            for policy in POLICIES.values()
        ],
    }


def own_constants(policy: Policy) -> dict[str, Any]:
    """The constants of a policy that are not the default's."""
    usual = Settings()
    values = {name: getattr(policy.settings, name) for name in (*SETTING_NAMES, *STRATEGY_NAMES)}
    return {name: value for name, value in values.items() if value != getattr(usual, name)}

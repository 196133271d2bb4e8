"""Contents of resources: transcripts, receipts, outputs, options and policies.

The command line also prints the document of the policies.
"""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from context_compaction import (
    POLICIES,
    SETTING_NAMES,
    Archive,
    JsonObject,
    Policy,
    QueryError,
    SessionInfo,
    Settings,
    compact_json,
)
from mcp_types import TextResourceContents

from mcp_server_compaction.config import entries
from mcp_server_compaction.protocol import resources, sessions
from mcp_server_compaction.protocol.schemas import CompactOptions, short_schema
from mcp_server_compaction.reading.slices import DEFAULT_CHARS
from mcp_server_compaction.reading.text_source import json_line, open_source

APP_TYPE = "text/html;profile=mcp-app"
# Clients with a handshake refuse events of more than 1 MiB over HTTP.
MAX_RESOURCE_BYTES = 900_000
# The resource of a session has at most this many of the newest messages.
_NEWEST_MESSAGES = 20


async def contents_of(
    uri: str, open_archive: Callable[[], Awaitable[Archive]]
) -> list[TextResourceContents]:
    """Return the contents of a resource. Open the archive only if the resource needs it.

    Raises:
        CompactionError: The resource does not exist or cannot be read.
    """
    documents = {resources.OPTIONS_URI: options_document, resources.POLICIES_URI: policies_document}
    if uri in documents:
        return [_contents(uri, resources.JSON_TYPE, compact_json(documents[uri]()))]
    if uri in resources.APP_URIS.values():
        from mcp_server_compaction.viewer.web import host_app  # which loads templates

        meta: dict[str, Any] = {"ui": {"prefersBorder": True, "csp": {}}}
        return [TextResourceContents(uri=uri, mime_type=APP_TYPE, text=host_app(), _meta=meta)]
    archive = await open_archive()
    session_id = uri.removeprefix("transcript://").removesuffix("/")
    if session_id != uri and "/" not in session_id:
        return await _transcript(archive, uri, session_id)
    return await _text(archive, uri)


def _contents(uri: str, mime_type: str, text: str) -> TextResourceContents:
    return TextResourceContents(uri=uri, mime_type=mime_type, text=text)


async def _text(archive: Archive, uri: str) -> list[TextResourceContents]:
    """Return an archived text, or as many of its lines as fit, and how to read on."""
    source = await open_source(archive, uri, as_json=True)
    mime_type = resources.JSON_LINES_TYPE if source.is_json else resources.TEXT_TYPE
    text = await source.characters(0, min(source.size_chars, MAX_RESOURCE_BYTES))
    data = text.encode("utf-8", "backslashreplace")
    if len(text) == source.size_chars and len(data) <= MAX_RESOURCE_BYTES:
        gap = [_contents(uri, resources.TEXT_TYPE, source.gap.strip())] if source.gap else []
        return [_contents(uri, mime_type, data.decode()), *gap]
    page = data[: data.rfind(b"\n", 0, MAX_RESOURCE_BYTES) + 1]
    count = page.count(b"\n")
    rest = source.rest_pointer(count)
    if not page or rest is None:
        raise QueryError(
            f"{uri} has {source.size_chars} characters, too many for one reply. Read it in parts "
            "with the tool read_persisted_output."
        )
    note = f"The first {count} of {source.line_count} lines. Read on with {rest}"
    return [_contents(uri, mime_type, page.decode()), _contents(rest, resources.TEXT_TYPE, note)]


async def _transcript(archive: Archive, uri: str, session_id: str) -> list[TextResourceContents]:
    """Return the metadata of a session and the newest messages of its newest branch."""
    info = await archive.session_info(session_id)
    branches, branch_count = await archive.branches(session_id)
    document = sessions.session_document(info) | sessions.branches_document(
        session_id, branches, branch_count
    )
    family, _ = await archive.sessions(limit=50, family_of=session_id)
    if len(family) > 1:
        family.sort(key=lambda info: (info.session_id != session_id, info.first_seconds))
        document["family"] = [await _member(archive, info) for info in family]
    contents = [_contents(uri, resources.JSON_TYPE, compact_json(document))]
    if not branches or not branches[0].seqs:
        return contents
    newest = branches[0]
    seqs = newest.seqs[-_NEWEST_MESSAGES:]
    messages = await archive.read_messages(session_id, seqs[0], seqs[-1], head=newest.head)
    text, count = "", 0
    for message in reversed(messages):
        line = f"{json_line(message.raw)}\n"
        if len(text) + len(line) > DEFAULT_CHARS:
            break
        text, count = line + text, count + 1
    if text:
        pointer = sessions.branch_pointer(session_id, newest, count)
        contents.append(_contents(pointer, resources.JSON_LINES_TYPE, text))
    return contents


async def _member(archive: Archive, info: SessionInfo) -> JsonObject:
    """Return a session of a family, with the tokens of its newest receipt."""
    receipts = await archive.receipts(info.session_id, after=-1)
    tokens: JsonObject | None = receipts[-1].get("tokens") if receipts else None
    return sessions.session_document(info) | {"tokens": tokens}


def options_document() -> dict[str, Any]:
    """Return all fields of the `options` of `compact_messages`."""
    defaults = Settings()
    descriptions = {name: text for name, _, text in entries(Settings, "Attributes")}
    return {
        "about": "Fields of `options` of the tool compact_messages. All are optional. An unknown "
        "name is an error.",
        "options": short_schema(CompactOptions)["properties"],
        "constants_of_the_policy": {
            name: {"default": getattr(defaults, name), "description": descriptions[name]}
            for name in SETTING_NAMES
        },
    }


def policies_document() -> dict[str, Any]:
    """Return all policies, each with the constants that differ from the defaults."""
    return {
        "about": "Values for `policy` of compact_messages. Change a constant by its name in "
        "`options`; options://compact_messages describes all constants. A policy lists only the "
        "constants that differ from the defaults.",
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
    """Return the constants of a policy that differ from the defaults."""
    defaults = asdict(Settings())
    values = asdict(policy.settings).items()
    return {name: value for name, value in values if value != defaults[name]}

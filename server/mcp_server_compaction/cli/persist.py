"""`persist [FILE|-]`: one large output into the archive, and what to put in its place."""

import json
import sys
from pathlib import Path

import anyio
from context_compaction.archive.opening import open_archive
from context_compaction.errors import SettingsError
from context_compaction.messages.edits import Blob, make_blob
from context_compaction.settings import Settings

from mcp_server_compaction.cli.compact import STANDARD_INPUT
from mcp_server_compaction.cli.terminal import say
from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.tools.persist_large_output import (
    UNFILED_SESSION,
    UNNAMED_TOOL,
    marker_of,
)


def run_persist(
    file: Path, config: Config, *, tool: str | None, session: str | None, as_json: bool
) -> None:
    """Store a file, or standard input, and print the marker with its preview.

    Raises:
        SettingsError: It is not text.
        ArchiveError: The archive fails.
    """
    text = _text(file)
    blob = make_blob(text, tool_name=tool)
    session_id = session or UNFILED_SESSION
    anyio.run(_store, config, session_id, blob)
    marker = marker_of(blob, text, tool or UNNAMED_TOOL, Settings().preview_chars)
    if as_json:
        figures = {
            "output_id": blob.output_id,
            "session_id": session_id,
            "size_bytes": len(blob.data),
            "marker": marker,
        }
        say(json.dumps(figures))
        return
    say(marker)
    say(f"Read it: mcp-server-compaction read {blob.output_id}", err=True)


def _text(file: Path) -> str:
    data = sys.stdin.buffer.read() if file == STANDARD_INPUT else file.read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        name = "Standard input" if file == STANDARD_INPUT else file.name
        raise SettingsError(
            f"{name} is not text in UTF-8 (byte {error.start}). Only texts are stored so."
        ) from error


async def _store(config: Config, session_id: str, blob: Blob) -> None:
    async with open_archive(config.archive, redaction=config.redaction) as archive:
        await archive.commit(session_id, blobs=[blob])

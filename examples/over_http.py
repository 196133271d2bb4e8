"""Fit a list with a server over HTTP: python examples/over_http.py URL TOKEN_FILE"""

import sys
from pathlib import Path

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_server_compaction.client import CompactionClient


async def main(url: str, token: str) -> None:
    """Send one message list and print the status of the reply."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=150) as http,
        Client(streamable_http_client(url, http_client=http)) as session,
    ):
        compaction = CompactionClient(session, context_window=200_000)
        messages = await compaction.fit([{"role": "user", "content": "Hello."}])
    print(compaction.answer["status"], messages)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], Path(sys.argv[2]).read_text(encoding="utf-8").strip())

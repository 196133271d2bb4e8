"""`python -m mcp_server_compaction`."""

from mcp_server_compaction.cli import main

main(prog_name="mcp-server-compaction")

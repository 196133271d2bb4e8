"""The MCP server and the command line around `context_compaction`."""

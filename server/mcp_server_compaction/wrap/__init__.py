"""A server before any other MCP server: everything passes, large tool results are demoted."""

"""A proxy in front of another MCP server that shortens large tool results."""

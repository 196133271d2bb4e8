"""A proxy in front of other MCP servers that shortens large tool results."""

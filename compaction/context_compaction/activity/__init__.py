"""The agent's actions, read from its calls and their results."""

"""What the agent did, as its calls and their results show it."""

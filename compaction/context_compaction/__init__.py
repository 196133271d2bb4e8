"""Make a conversation fit its context window: nothing lost, always valid, no LLM needed."""

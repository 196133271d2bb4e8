"""Compare policies on a conversation: what the model still knows, and what a replay costs."""

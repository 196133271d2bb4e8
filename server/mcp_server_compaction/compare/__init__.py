"""Policies compared on a conversation: what each keeps, and what a replay costs."""

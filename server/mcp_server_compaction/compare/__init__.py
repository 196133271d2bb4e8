"""Compare policies on a conversation: what each one keeps, and what a replay costs."""

"""Count texts, messages and whole requests, in tokens and bytes."""

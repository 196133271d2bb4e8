"""Who calls over HTTP, what they may do, and how much of it."""

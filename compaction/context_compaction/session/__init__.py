"""What is remembered of a session between two calls."""

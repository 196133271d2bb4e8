"""The state of a session between two calls."""

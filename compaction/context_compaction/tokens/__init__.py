"""Counts of a text, a message and a whole request, in tokens and bytes."""

"""Counting: what a text, a message and a whole request come to, in tokens and bytes."""

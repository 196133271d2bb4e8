"""Conversations in the files that agents' hosts keep of their sessions."""

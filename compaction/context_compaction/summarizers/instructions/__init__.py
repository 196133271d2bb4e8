"""Rules of the user: where they are stated, whether they still hold, what is pinned."""

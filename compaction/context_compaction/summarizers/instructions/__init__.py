"""Rules of the user: where they are stated, and whether they still hold."""

"""Pages over the archive, for people: sessions, transcripts, compactions, search."""

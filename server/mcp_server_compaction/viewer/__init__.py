"""Web pages over the archive for people: sessions, transcripts, compactions, search, storage."""

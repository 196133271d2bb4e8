"""Archives of transcripts and outputs: in a folder (`local/`) or a database (`postgres/`)."""

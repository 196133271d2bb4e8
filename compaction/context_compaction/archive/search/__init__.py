"""Search over any archive: what is asked of its index, how rows are ranked, and what is shown."""

"""The summarizer that asks a model, and what its text is checked for."""

"""The summarizer without a model: verbatim extracts of the conversation."""

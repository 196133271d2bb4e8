"""The summarizer without a model: chosen lines of the conversation itself."""

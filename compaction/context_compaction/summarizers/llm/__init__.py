"""The summarizer that asks a model, and the checks of the model's text."""

"""A proxy before a model's API: it makes the conversation in each request fit its window."""

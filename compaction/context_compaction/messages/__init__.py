"""The conversation model: what a message is, how lists of them are read and edited."""

"""Compare the recall and cost of policies on a conversation."""

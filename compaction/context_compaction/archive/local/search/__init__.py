"""Full-text and regular-expression search over the local archive."""

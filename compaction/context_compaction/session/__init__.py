"""Find where a message list continues its session, and save state for later calls."""

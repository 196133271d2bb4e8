"""Where a message list continues its session, and what calls save for later calls."""

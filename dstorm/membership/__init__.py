"""Who is alive, and what the ranks that are do together."""

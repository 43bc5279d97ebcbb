"""The calls of a session."""

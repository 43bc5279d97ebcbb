"""How messages are merged into an array."""

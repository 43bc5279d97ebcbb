"""How a session begins whose ranks may fail."""

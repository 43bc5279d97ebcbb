"""The session: its calls, vectors, collectives and checkpoints."""

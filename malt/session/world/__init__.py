"""The world of a session: its ranks, how they agree, and how it ends."""

"""The world of this process, and how its ranks agree."""

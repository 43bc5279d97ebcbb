"""Ranks that come back to a vector that others have."""

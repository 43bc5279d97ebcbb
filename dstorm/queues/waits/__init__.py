"""Waits for the peers of a vector."""

"""Merging of messages into an array."""

"""Vectors, blocks and graphs: all ranks make them together."""

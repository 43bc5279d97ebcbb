"""Sparse vectors: a message holds some of the rows."""

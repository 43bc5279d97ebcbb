"""Sparse vectors: rows are sent."""

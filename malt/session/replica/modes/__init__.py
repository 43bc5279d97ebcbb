"""Modes of exchanging groups of parameters: a class for each."""

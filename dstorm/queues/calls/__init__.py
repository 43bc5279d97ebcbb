"""Calls that send or merge a whole dense array at once, compiled, inside a host."""

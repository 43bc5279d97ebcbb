"""Receive queues over a window: the sending end, the receiving end, and the pure modules that decide."""

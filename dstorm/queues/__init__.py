"""Receive queues over a window: the sending and the receiving end, and what decides."""

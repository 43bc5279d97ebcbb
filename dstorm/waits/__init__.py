"""Waits for other ranks: deadlines, the time in which a loop polls, and signals that are deferred meanwhile."""

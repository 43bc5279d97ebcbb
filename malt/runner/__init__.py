"""Runs jobs: what runs inside a rank; in folders of their own the launcher, and what a job shows."""

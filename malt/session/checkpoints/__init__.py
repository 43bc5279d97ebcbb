"""Resumes trainings: `malt.Checkpoint`, and the values that its files hold."""

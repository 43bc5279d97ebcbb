"""The standard streams of a job: its input and its output."""

"""Faults that the launcher brings about in a job of the user's, on request (`malt run --inject`)."""

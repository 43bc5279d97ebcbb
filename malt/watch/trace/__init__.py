"""Traces of the exchanges of ranks, and what is made of them: a timeline for Perfetto, and a report."""

"""Simulated ranks in one process, without MPI: they take turns as a seed decides."""

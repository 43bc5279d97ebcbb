"""Transports, which move bytes: MPI, shared memory, TCP, and simulated ranks in one process."""

"""What moves bytes: MPI, shared memory, TCP, and simulated ranks in one process."""

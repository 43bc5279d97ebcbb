"""The launcher's knowledge of the ranks: their reports, the state of the job, long waits."""

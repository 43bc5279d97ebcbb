"""What the launcher learns of the ranks: their reports, the state of the job, long waits."""

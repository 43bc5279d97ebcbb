"""What of this machine a job may use."""

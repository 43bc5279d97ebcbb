"""What a job reads and prints."""

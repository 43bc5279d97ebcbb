"""The memory of each rank that was set aside at the start, as windows cannot be made once a rank has failed."""

"""`malt run --compare`: a program on several numbers of ranks."""

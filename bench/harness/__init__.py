"""What all measurements share: a command line, jobs, turns, and the rest of the machine."""

"""The runner: how the program of a rank runs, reports and ends."""

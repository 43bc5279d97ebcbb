"""The process of a rank: how its program runs and ends."""

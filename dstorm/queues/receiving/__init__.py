"""The receiving end: what has come from each in-neighbour."""

"""The joint work of the live ranks: barriers, collectives, windows; their agreement on one view."""

"""What the live ranks do together: barriers, collectives, windows; how they come to the same view."""

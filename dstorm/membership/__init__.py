"""The membership view, and what the live ranks do together: barriers, collectives, windows."""

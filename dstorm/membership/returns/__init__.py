"""What ranks tell each other while a failed rank comes back: that it is admitted, and what it gets."""

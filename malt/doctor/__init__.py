"""`malt doctor`."""

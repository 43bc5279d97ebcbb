"""`malt.run`."""

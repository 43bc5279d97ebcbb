"""`malt.Replica`, and what decides for it."""

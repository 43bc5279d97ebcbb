"""`malt.Replica` and its parts."""

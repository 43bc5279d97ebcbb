"""`malt doctor`: a report on what works on this machine."""

"""Programs that measure MALT; each prints a table, and writes a page of docs/."""

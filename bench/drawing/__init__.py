"""Pictures of docs/: bars, lines, and what ranks do over time."""

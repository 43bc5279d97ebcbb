"""Pictures of docs/: bars, and what ranks do over time."""

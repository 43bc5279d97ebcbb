"""What a running job shows: what ranks report of themselves, who reads it, and how it is drawn."""

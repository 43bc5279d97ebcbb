"""Programs that write a page of docs each, or print a table."""

"""Programs that measure MALT. Each prints a table and can write a page of docs/."""

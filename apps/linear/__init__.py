"""Rows for linear models, as programs read them; the rows that are embedded."""

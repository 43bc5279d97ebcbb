"""The text of data files: its formats, and what reads them."""

"""The parts of `python -m bench`: MALT against other libraries."""

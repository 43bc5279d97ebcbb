"""Barriers with a deadline: where no rank can fail alone, where ranks may fail, and where failed ones come back."""

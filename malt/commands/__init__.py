"""The commands of `malt`: the command line, and what `malt doctor` does."""

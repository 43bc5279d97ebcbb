"""The launcher: what `malt run` runs in its own process."""

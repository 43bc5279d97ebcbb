"""The launcher of `malt run`."""

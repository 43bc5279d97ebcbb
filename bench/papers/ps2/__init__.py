"""Where a vector is updated by others: where their parts lie, or elsewhere: the experiments of PS2 (SIGMOD 2019)."""

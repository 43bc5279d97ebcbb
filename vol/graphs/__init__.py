"""Communication graphs, their shapes and their spectra."""

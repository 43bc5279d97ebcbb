"""How groups of parameters are exchanged: a class for each mode."""

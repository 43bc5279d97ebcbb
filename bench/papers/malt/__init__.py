"""MALT's own experiments (EuroSys 2015) on shapes of its data: speedup, bytes, a failure, lines that a port changes."""

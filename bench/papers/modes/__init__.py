"""Who waits for whom while apps.svm and apps.mlp train: modes, graphs, a slow rank (MALT, EuroSys 2015)."""

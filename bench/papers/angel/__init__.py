"""Optimizers whose vectors go through one rank, or lie in parts on all: the experiments of Spark on Angel (2017)."""

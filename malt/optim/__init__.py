"""Optimizers for arrays and for sharded vectors: the same code runs on both."""

from malt.optim.lbfgs import Result, lbfgs
from malt.optim.updates import adagrad, adam, ftrl, momentum, nesterov

__all__ = ["Result", "adagrad", "adam", "ftrl", "lbfgs", "momentum", "nesterov"]

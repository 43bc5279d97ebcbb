"""Optimizers for arrays and for sharded vectors: the same code runs on both."""

from malt.optim.lbfgs import lbfgs
from malt.optim.objective import Result
from malt.optim.owlqn import owlqn
from malt.optim.updates import adagrad, adam, ftrl, momentum, nesterov

__all__ = ["Result", "adagrad", "adam", "ftrl", "lbfgs", "momentum", "nesterov", "owlqn"]

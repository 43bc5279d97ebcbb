"""Matrix factorization by stochastic gradient descent: the objective, compiled kernels, training on all ranks, models.

Users are dealt to ranks. The rows of items are blocks, each of which one rank holds at a time.
"""

from malt.models.factors.averaging import USUAL, Averaging, capacity
from malt.models.factors.compiled import predict, squares, train, train_kernel
from malt.models.factors.dealt import DealtRatings
from malt.models.factors.learner import Learner, Pairs, Settings
from malt.models.factors.model import Model, numbered
from malt.models.factors.problem import MAX_RANK, Numbers, Rows
from malt.models.factors.rotation import Rotation

__all__ = [
    "MAX_RANK",
    "USUAL",
    "Averaging",
    "DealtRatings",
    "Learner",
    "Model",
    "Numbers",
    "Pairs",
    "Rotation",
    "Rows",
    "Settings",
    "capacity",
    "numbered",
    "predict",
    "squares",
    "train",
    "train_kernel",
]

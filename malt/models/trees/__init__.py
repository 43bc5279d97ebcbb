"""Gradient-boosted trees on histograms, which all ranks grow together: bins, trees, compiled kernels.

    binning = bins_of(X, most, has_missing, seed)
    grower = Grower(binning.bins(X), binning, Growth(), rows)
    tree = grower.grow(scores, y)

Every rank has rows of its own, and makes histograms of them. Ranks add them up, all together where they are small, else
each for its own features, and split at the best of all. Features that exclude each other share a column. Gradients are
summed in fixed point, and equal gains go to the lower feature, then the lower bin: the trees are the same on any number
of ranks, with and without such columns.
"""

from malt.models.trees.binning import MOST_BINS, SAMPLE_ROWS, Binning, bins_of
from malt.models.trees.ensemble import Nodes, Trees
from malt.models.trees.growing import MOST_DEPTH, MOST_ROWS, Grower, Growth, compile_kernels
from malt.models.trees.losses import LOSSES, softmax
from malt.models.trees.rounds import Rounds, Scored

__all__ = [
    "LOSSES",
    "MOST_BINS",
    "MOST_DEPTH",
    "MOST_ROWS",
    "SAMPLE_ROWS",
    "Binning",
    "Grower",
    "Growth",
    "Nodes",
    "Rounds",
    "Scored",
    "Trees",
    "bins_of",
    "compile_kernels",
    "softmax",
]

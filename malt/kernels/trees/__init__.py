"""Gradient-boosted trees on histograms, which all ranks grow together: bins, trees, compiled kernels.

    binning = bins_of(X, most, has_missing, seed)
    grower = Grower(binning.bins(X), binning, Growth(), rows)
    tree = grower.grow(scores, y)

Every rank has rows of its own, and makes histograms of them. Ranks add them up, each for its own features, and split at
the best of all. Gradients are summed in fixed point, and equal gains go to the lower feature, then the lower bin: the
trees are the same on any number of ranks.
"""

from malt.kernels.trees.binning import MOST_BINS, SAMPLE_ROWS, Binning, bins_of
from malt.kernels.trees.compiled import LOSSES, compile_kernels, softmax, total_loss
from malt.kernels.trees.ensemble import Nodes, Trees
from malt.kernels.trees.growing import MOST_DEPTH, MOST_ROWS, Grower, Growth

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
    "Trees",
    "bins_of",
    "compile_kernels",
    "softmax",
    "total_loss",
]

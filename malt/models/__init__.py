"""Models that all ranks train, in a folder each: kernels, trainers, and an estimator for scikit-learn.

`malt.models.linear`: linear models. `malt.models.factors`: matrix factorization. `malt.models.trees`: boosted trees.
`malt.models.networks`: networks of dense layers, which are NumPy; those of sparse rows are compiled.

Programs of apps/ and the estimators of `malt.sklearn` train by them. Nothing imports a model by itself.
"""

from malt.models.common import (
    Counted,
    Sharing,
    Sums,
    by_rank,
    common_mean,
    compared_parts,
    gathered,
    moved,
    of_lowest,
    same_start,
    sum_statistics,
)

__all__ = [
    "Counted",
    "Sharing",
    "Sums",
    "by_rank",
    "common_mean",
    "compared_parts",
    "gathered",
    "moved",
    "of_lowest",
    "same_start",
    "sum_statistics",
]

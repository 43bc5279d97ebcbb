"""`malt.sklearn`: scikit-learn over several ranks. It needs the extra `sklearn`, and is loaded when it is used."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from dstorm.lazy_imports import at_first_use

if find_spec("sklearn") is None:
    raise ImportError("malt.sklearn needs scikit-learn: pip install '.[sklearn]' in the checkout")

if TYPE_CHECKING:
    from malt.models.factors.estimator import MatrixFactorization
    from malt.models.linear.estimator import LinearSVC, LogisticRegression
    from malt.models.networks.estimator import MLPClassifier, MLPRegressor
    from malt.models.trees.estimator import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from malt.sklearn.averaged import average
    from malt.sklearn.grid_search import GridSearchCV

__all__ = [
    "GridSearchCV",
    "HistGradientBoostingClassifier",
    "HistGradientBoostingRegressor",
    "LinearSVC",
    "LogisticRegression",
    "MLPClassifier",
    "MLPRegressor",
    "MatrixFactorization",
    "average",
]

_LATER = {
    "GridSearchCV": "malt.sklearn.grid_search",
    "HistGradientBoostingClassifier": "malt.models.trees.estimator",
    "HistGradientBoostingRegressor": "malt.models.trees.estimator",
    "LinearSVC": "malt.models.linear.estimator",
    "LogisticRegression": "malt.models.linear.estimator",
    "MLPClassifier": "malt.models.networks.estimator",
    "MLPRegressor": "malt.models.networks.estimator",
    "MatrixFactorization": "malt.models.factors.estimator",
    "average": "malt.sklearn.averaged",
}
"""Names that are imported at their first use, and their modules."""

__getattr__, __dir__ = at_first_use(__name__, _LATER)

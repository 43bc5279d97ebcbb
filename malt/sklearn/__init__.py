"""`malt.sklearn`: scikit-learn over several ranks. It needs the extra `sklearn`, and is loaded when it is used."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("sklearn") is None:
    raise ImportError("malt.sklearn needs scikit-learn: pip install '.[sklearn]' in the checkout")

if TYPE_CHECKING:
    from malt.sklearn.averaged import average
    from malt.sklearn.boosting import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from malt.sklearn.factorization import MatrixFactorization
    from malt.sklearn.gridsearch import GridSearchCV
    from malt.sklearn.linear import LinearSVC, LogisticRegression
    from malt.sklearn.neural import MLPClassifier, MLPRegressor

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
    "GridSearchCV": "gridsearch",
    "HistGradientBoostingClassifier": "boosting",
    "HistGradientBoostingRegressor": "boosting",
    "LinearSVC": "linear",
    "LogisticRegression": "linear",
    "MLPClassifier": "neural",
    "MLPRegressor": "neural",
    "MatrixFactorization": "factorization",
    "average": "averaged",
}
"""Names that are imported at their first use, and their modules."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"malt.sklearn.{_LATER[name]}"), name)
    raise AttributeError(f"module 'malt.sklearn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})

"""`malt.sklearn.average`: an estimator whose partial_fit exchanges its model with other ranks."""

from __future__ import annotations

from functools import wraps
from types import new_class
from typing import Any, Final, NoReturn

from malt.session.replica.totals import ReplicaStatistics
from malt.sklearn.averaging import Averaging

_NEWOBJ: Final = 2
"""The first protocol of pickle that makes objects by their class alone."""


def average(
    estimator: Any, every: Any = None, graph: Any = "auto", sync: str = "asp", *, epoch: int | None = None
) -> Any:
    """Return `estimator` with a partial_fit that exchanges its model with those of other ranks. Collective.

        model = malt.sklearn.average(SGDClassifier())
        for batch in malt.shard(batches):
            model.partial_fit(X[batch], y[batch], classes=[0, 1])
        model.finish()

    The result is an instance of the estimator's class as well, and shares its attributes: training one trains the
    other. Every `every` calls of partial_fit it merges the models of its neighbours, as malt.Replica does with
    average="model"; by default as often as is worth the cost. `graph`, `sync`, `epoch`: as there; `epoch` counts
    calls, too. clone, copy and pickle return a plain estimator. `fit` is refused.

    - `model.statistics()`: as of a Replica, with the interval in use.
    - `model.finish()`: all ranks end with one and the same model, that of the ranks that have called partial_fit; it is
      collective. Ranks may make different numbers of calls, or none.
    - The first call of partial_fit is collective. Where a rank calls `finish` without one, that is.
    - Classes are those that any rank gives in its first call. Later a rank may give some of them.
    - All ranks start from one state: coefficients of 0, the weights that the first rank draws, the centres that it has
      after its first batch; of a fitted estimator those of rank 0. It is fitted on all ranks, or on none.

    partial_fit takes `sample_weight` where that of the estimator does. Counts, and centres of MiniBatchKMeans, then add
    up weights; in other means a call counts as another one, whatever its rows weigh.

    SGDClassifier, SGDRegressor, SGDOneClassSVM, Perceptron, PassiveAggressiveClassifier and -Regressor exchange
    coefficients and intercepts, with `average` also their means over steps, of the ranks on which these have begun.
    MLPClassifier and MLPRegressor exchange weights; what their optimizers keep stays each rank's own. MiniBatchKMeans
    exchanges centres, weighted by the rows that were assigned to them. In `finish`, t_ and n_steps_ become the sums of
    all ranks. Losses and labels of the last batch stay each rank's own. MultinomialNB, ComplementNB, BernoulliNB and
    CategoricalNB count rows: `agree` and `finish` add up the counts of all ranks, and nothing is sent before; no rank
    comes to them later.

    A rank that comes later (malt run --rejoin, --elastic) goes on from the state and the counter of another rank. With
    --elastic naive Bayes is a ValueError.

    ValueError, the same on all ranks: the state of `estimator` is no mean; an argument is wrong, or differs. Errors of
    the first partial_fit come on all ranks. ClosedError: partial_fit follows finish.
    """
    averaging = Averaging(estimator, every, epoch, graph, sync)
    made = object.__new__(_class_for(type(estimator)))
    made.__dict__ = estimator.__dict__
    made._averaging = averaging
    return made


class Averaged:
    """The methods that the result of `average` adds to those of its estimator, whose attributes it shares."""

    __slots__ = ("_averaging",)
    _averaging: Averaging

    def fit(self, *args: Any, **kwargs: Any) -> NoReturn:
        """RuntimeError: it would begin anew, on this rank's rows alone."""
        raise RuntimeError(
            "malt.sklearn.average: fit would start over on this rank's rows alone: call partial_fit, or fit the "
            "estimator before average()"
        )

    def finish(self) -> None:
        """Replace the model by that of all ranks: the same bits on all. Collective. A second call does nothing.

        Errors: as of malt.Replica.finish.
        """
        self._averaging.finish()

    def agree(self) -> None:
        """Replace the model by that of all ranks, the same bits on all, and go on: for evaluation. Collective.

        As malt.Replica.agree. What the model was trained on, as t_ and the counts of MiniBatchKMeans, stays each rank's
        own until finish. Counts of naive Bayes are added up.

        ClosedError: the call follows finish. Other errors: as of malt.Replica.agree.
        """
        self._averaging.agree()

    def statistics(self) -> ReplicaStatistics:
        """The totals of all vectors, and the interval in use. Local; any thread may call it at any time.

        Before the first partial_fit, and where counts are added up, nothing is exchanged, and all totals are 0.
        """
        return self._averaging.statistics()

    def __sklearn_clone__(self) -> Any:
        from sklearn.base import clone

        return clone(self._averaging.estimator)

    def __reduce_ex__(self, protocol: Any) -> Any:
        _, *rest = self._averaging.estimator.__reduce_ex__(max(int(protocol), _NEWOBJ))
        return (
            object.__new__,
            *rest,
        )  # copyreg.__newobj__, which does the same, is refused for an object of another class


def _class_for(kind: Any) -> Any:
    """A class like `kind`, with the methods of `Averaged`."""

    @wraps(kind.partial_fit)
    def partial_fit(self: Averaged, *args: Any, **kwargs: Any) -> Averaged:
        self._averaging.partial_fit(args, kwargs)
        return self

    own = {"__slots__": (), "__doc__": kind.__doc__, "partial_fit": partial_fit}
    return new_class(f"Averaged{kind.__name__}", (Averaged, kind), exec_body=lambda space: space.update(own))

"""`malt.sklearn.MatrixFactorization`: ratings of items by users, predicted."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dstorm.words import shown
from malt.data import Ratings
from malt.data.text.rating_form import role_of
from malt.kernels import compile_first
from malt.models.factors import MAX_RANK, DealtRatings, Model, Rotation, Settings, numbered, train_kernel
from malt.models.factors.pairs import ids, of_all_ranks, read
from malt.models.rows import agreed, check_numbers, described, settings
from malt.session.collectives import broadcast
from malt.session.session import alive, rank, size
from vol import arguments

Array = NDArray[Any]


@dataclass(frozen=True)
class Learned:
    """A model, and what its rows were trained on in all calls: the same on all ranks."""

    model: Model
    totals: tuple[Array, Array]
    """The ratings of each user and of each item."""

    def totals_of(self, ratings: Ratings) -> tuple[Array, Array]:
        """The ratings of the users and items of `ratings`, which may be new."""
        model = self.model
        users, items = numbered(model.user_ids, ratings.user_ids), numbered(model.item_ids, ratings.item_ids)
        return np.append(self.totals[0], 0)[users], np.append(self.totals[1], 0)[items]  # -1 is a new one

    def updated(self, new: Learned) -> Learned:
        """This one with the rows of `new` in the place of its own, and with those that it has not."""
        user_ids, (users, user_totals) = _updated(*self._of_users(), *new._of_users())
        item_ids, (items, item_totals) = _updated(*self._of_items(), *new._of_items())
        changed = {"users": users, "items": items, "user_ids": user_ids, "item_ids": item_ids}
        return Learned(Model(**{**vars(new.model), **changed}), (user_totals, item_totals))

    def _of_users(self) -> tuple[Array, tuple[Array, Array]]:
        return self.model.user_ids, (self.model.users, self.totals[0])

    def _of_items(self) -> tuple[Array, tuple[Array, Array]]:
        return self.model.item_ids, (self.model.items, self.totals[1])


def _updated(
    old_ids: Array, old: tuple[Array, ...], new_ids: Array, new: tuple[Array, ...]
) -> tuple[Array, list[Array]]:  # fmt: skip
    """The ids of both, ascending, and the arrays of `new` by id; those of `old` where `new` has none."""
    known = np.union1d(old_ids, new_ids)
    columns = []
    for before, after in zip(old, new, strict=True):
        columns.append(np.empty((len(known), *after.shape[1:]), after.dtype))
        columns[-1][np.searchsorted(known, old_ids)] = before
        columns[-1][np.searchsorted(known, new_ids)] = after
    return known, columns


class MatrixFactorization(RegressorMixin, BaseEstimator):
    """Predicts ratings of items by users from biases and products of factors, trained by all ranks together.

        model = malt.sklearn.MatrixFactorization().fit([["ann", "Alien"], ["bob", "Brazil"]], [4.0, 5.0])

    X has two columns: the ids of a user and of an item, each integers or text. y are the ratings. The rating of
    item i by user u is predicted as

        r = mean + spread (b_u + b_i + p_u . q_i), held in the range of the ratings given

    and e^2 / 2 + a_u / 2 (|p_u|^2 + b_u^2) + a_i / 2 (|q_i|^2 + b_i^2) is minimized, summed over the ratings, by
    stochastic gradient descent. There e is the error divided by `spread`, a_x = alpha (1 + 30 / n_x), and n_x the
    number of ratings of a user or an item. A user or an item that is not known adds nothing.

    Ranks deal users to each other: the row of a user is trained by one rank. Rows of items are passed on from rank to
    rank, as malt.blocks has it, and never averaged. All ranks end with the same model, bit for bit.

    `n_factors`: the length of p and q. `alpha`: the weight of the penalty. `learning_rate`: the first step size, which
    falls linearly to 0 in `max_iter` epochs. `biases`: whether there are b_u and b_i. `rows`: "shard": all ranks pass
    the same rows; "mine": each rank passes rows of its own, of any users, and ranks exchange them. Either way each rank
    holds all rows, of 12 bytes. `random_state`: the first factors and the order of ratings; that of the lowest rank
    counts.

    `user_ids_`, `item_ids_`: the ids, ascending. `user_factors_`, of shape (users, n_factors), `user_biases_`,
    `item_factors_`, `item_biases_`: p and b in their order, float32. `mean_`, `spread_`: of the ratings of
    the first call. `n_iter_`: the epochs of the last call. `n_features_in_`: 2.
    """

    n_iter_: int

    def __init__(
        self, n_factors: int = 16, *, alpha: float = 0.05, learning_rate: float = 0.04, max_iter: int = 20,
        biases: bool = True, rows: str = "shard", random_state: Any = None,
    ) -> None:  # fmt: skip
        self.n_factors, self.alpha, self.learning_rate, self.max_iter = n_factors, alpha, learning_rate, max_iter
        self.biases, self.rows, self.random_state = biases, rows, random_state

    def fit(self, X: Any, y: Any) -> Any:
        """Train on the ratings y, of shape (ratings,), of the pairs X, of shape (ratings, 2). Returns self. Collective.

        ValueError, the same on all ranks: an argument or parameter is wrong on one of them; with rows="shard" X or y
        differ. FloatingPointError, on all: the factors are no longer finite, as `learning_rate` is too large.
        """
        return self._learn("fit", X, y, None)

    def partial_fit(self, X: Any, y: Any) -> Any:
        """Train on each rating once, from where the last call of fit or partial_fit ended. Returns self. Collective.

        New users and items get rows. The step size is `learning_rate`. All ranks make the same number of calls, and end
        each with the same model. In the penalty n_x counts the ratings of all calls. Errors: as `fit`.
        """
        return self._learn("partial_fit", X, y, getattr(self, "_learned", None))

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The predicted rating of each pair of X, of shape (pairs,), float64. Local. `score` is their R^2."""
        check_is_fitted(self)
        return self._learned.model.predict(*ids(validate_data(self, X, dtype=None, reset=False)))

    @property
    def user_ids_(self) -> Array:
        """The ids of the users, ascending."""
        return _named(self._learned.model.user_ids)

    @property
    def item_ids_(self) -> Array:
        """The ids of the items, ascending."""
        return _named(self._learned.model.item_ids)

    @property
    def user_factors_(self) -> Array:
        """The factors p, of shape (users, n_factors), float32. A view."""
        return self._learned.model.users[:, :-1]

    @property
    def item_factors_(self) -> Array:
        """The factors q, of shape (items, n_factors), float32. A view."""
        return self._learned.model.items[:, :-1]

    @property
    def user_biases_(self) -> Array:
        """The biases of the users, float32. A view."""
        return self._learned.model.users[:, -1]

    @property
    def item_biases_(self) -> Array:
        """The biases of the items, float32. A view."""
        return self._learned.model.items[:, -1]

    @property
    def mean_(self) -> float:
        """The mean of the ratings of the first call."""
        return self._learned.model.mean

    @property
    def spread_(self) -> float:
        """The standard deviation of the ratings of the first call."""
        return self._learned.model.spread

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_learned")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = tags.input_tags.string = True
        tags.regressor_tags.poor_score = True  # of pairs that are drawn at random
        return tags

    # -- private ----------------------------------------------------------------------------------------------

    def _learn(self, what: str, X: Any, y: Any, before: Learned | None) -> Any:
        """Train `before`, or new rows, on these ratings. Collective."""
        name = f"{type(self).__name__}.{what}"
        ratings, reports = agreed(name, lambda: self._checked(X, y, before))
        if self.rows == "mine":
            users, items = np.max([one["_widths"] for one in reports.values()], axis=0)
            ratings = of_all_ranks(ratings, (users, items))
        compile_first(lambda: train_kernel(self.n_factors))
        seed = [reports[min(reports)]["_seed"], 0 if before is None else int(before.totals[0].sum())]
        dealt = self._dealt(ratings, seed, before)
        epochs = self.max_iter if what == "fit" else 1
        try:
            model = _trained(dealt, Settings(self.alpha, self.learning_rate, epochs), seed)
        except FloatingPointError:  # on all ranks
            raise FloatingPointError(f"{name}: learning_rate={self.learning_rate:g} is too large") from None
        new = Learned(model, dealt.totals)
        self._learned = new if before is None else before.updated(new)
        self.n_iter_ = epochs
        return self

    def _dealt(self, ratings: Ratings, seed: list[int], before: Learned | None) -> DealtRatings:
        """The ratings, dealt to ranks, with rows to begin with. Collective."""
        start = None if before is None else before.model
        dealt = DealtRatings(ratings, self.n_factors, self.biases, seed, start)
        scale = np.array([dealt.mean, dealt.spread])
        broadcast(scale, alive()[0])  # hosts of different kinds may round differently
        dealt.mean, dealt.spread = scale.tolist()
        if before is not None:
            users, items = before.totals_of(ratings)
            dealt.totals = users + dealt.user_counts, items + dealt.item_counts
        return dealt

    def _checked(self, X: Any, y: Any, before: Learned | None) -> Any:
        """This rank's ratings; what ranks compare. Local."""
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=None, y_numeric=True, reset=before is None)
        roles = [role_of(str(name).encode()) for name in getattr(self, "feature_names_in_", ())]
        if len(roles) == 2 and (roles[0] not in ("user", "") or roles[1] not in ("item", "")):
            raise ValueError(f"X must have users, then items, got columns {' and '.join(self.feature_names_in_)}")
        found = read(X, y)
        kinds = found.user_ids.dtype.kind, found.item_ids.dtype.kind
        if before is not None:
            _check_start(before.model, self.n_factors, self.biases, kinds)
        pairs = np.stack([found.users, found.items], axis=1)
        names = [zlib.crc32(np.ascontiguousarray(one).data) for one in (found.user_ids, found.item_ids)]
        return found, {
            **settings(self),
            "ids, text (S) or integers (i)": "".join(kinds),
            "the ratings of calls before": 0 if before is None else int(before.totals[0].sum()),
            **described(self.rows, pairs, found.ratings, (), self.random_state),
            "the ids of X" if self.rows == "shard" else "_names": names,
            "_widths": [found.user_ids.itemsize, found.item_ids.itemsize],
        }

    def _check_parameters(self) -> None:
        """TypeError, ValueError: a parameter is not valid."""
        check_numbers(self, {"n_factors": 1, "max_iter": 1}, least_0=("alpha", "learning_rate"))
        if self.n_factors > MAX_RANK:
            raise ValueError(f"n_factors must be at most {MAX_RANK}, got {shown(self.n_factors)}")
        arguments.truth("biases", self.biases)


def _check_start(model: Model, n_factors: int, biases: bool, kinds: tuple[str, str]) -> None:
    """ValueError: a training with these parameters and kinds of ids cannot go on with `model`."""
    if (n_factors, biases) != (model.rank, model.biases):
        raise ValueError(f"n_factors and biases must stay {model.rank} and {model.biases}, as in the first call")
    if kinds != (model.user_ids.dtype.kind, model.item_ids.dtype.kind):
        raise ValueError("ids must stay text or numbers, as in the first call")


def _named(found: Array) -> Array:
    return np.char.decode(found, "utf-8") if found.dtype.kind == "S" else found


class _Training(Rotation):
    """A rotation whose ranks all learn at its end that rows are not finite, and make all rounds until then."""

    is_finite = True

    def _train(self, *arguments: Any) -> None:
        if self.is_finite:
            try:
                super()._train(*arguments)
            except FloatingPointError:
                self.is_finite = False


def _trained(dealt: DealtRatings, settings: Settings, seed: list[int]) -> Model:
    """The model after these epochs. Collective. FloatingPointError, on all ranks: a row is not finite."""
    learner = _Training(dealt, settings, np.random.default_rng([*seed, rank()]), {})
    ranks = tuple(range(size()))

    def deal(present: tuple[int, ...]) -> None:
        """Deal the users of other ranks than those, and train them for the epochs that are done."""
        nonlocal ranks
        if present != ranks:
            ranks = present
            dealt.deal(set(range(size())) - set(ranks))
            learner.catch_up(learner.take(), range(done))

    with learner.items:
        for done in range(settings.epochs):
            deal(learner.present())
            learner.learn(done, learner.order())
        done = settings.epochs
        learner.end()
        return dealt.model(*learner.common(deal))

"""`malt.sklearn.GridSearchCV`: the fits of a grid search side by side on all ranks."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from operator import add
from typing import Any, Final

import numpy as np
import sklearn
from sklearn import model_selection
from sklearn.utils.parallel import Parallel

from malt.data.mapreduce import map_reduce
from malt.files.checksum import Checksum, checksum
from malt.session import session
from malt.session.simulation import alone

_CALL: Final = "malt.sklearn.GridSearchCV"
_SHOWN: Final = 8
"""Digits of a hash in a message."""
_LONGEST: Final = 60
"""Characters of a list of candidates in a message."""
_SETTINGS: Final = ("scoring", "refit", "cv", "error_score", "return_train_score")
"""Parameters of a search that ranks compare."""
_SEEDS: Final = 2**31 - 1
Task = tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]
"""A call that joblib has delayed: the fit and the scores of one candidate on one split."""


class GridSearchCV(model_selection.GridSearchCV):
    """scikit-learn's GridSearchCV, with its fits distributed over all ranks. `fit` is collective.

    Signature, attributes and errors are scikit-learn's. Every rank passes all rows. Each fit of a candidate on a split
    is done by one rank on its own, where malt's estimators train alone. The fits of a failed rank are done by others.
    All ranks have the same cv_results_ and best_params_. Each of them then fits best_estimator_ on all rows, with the
    same rows and seeds even if random_state is None. `n_jobs` is only used with a single rank.

    A fit that takes longer than the deadline of the session needs malt.init(deadline_s=).

    ValueError, the same on all ranks: parameters, rows, candidates or splits differ; an estimator has rows="mine". With
    error_score="raise" the error of a fit is raised on all ranks, as by malt.map_reduce.
    """

    def fit(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Run fit with all sets of parameters. Collective. NumPy's global generator is left as it was."""
        state = np.random.get_state()
        try:
            return super().fit(X, y, **params)
        finally:
            if session.world().size > 1:
                np.random.set_state(state)

    @wraps(model_selection.GridSearchCV._run_search)  # scikit-learn looks at its parameters
    def _run_search(self, evaluate_candidates: Any, **options: Any) -> None:
        if session.world().size > 1:
            _deal(evaluate_candidates, {name: _shown(getattr(self, name)) for name in _SETTINGS})
        super()._run_search(evaluate_candidates, **options)


def _deal(evaluate_candidates: Any, settings: Mapping[str, str]) -> None:
    """Put `_over_ranks` in the place of joblib's Parallel, a variable of the function that evaluates candidates.

    `settings`: of the search, to be compared.
    """
    names = evaluate_candidates.__code__.co_freevars
    if "parallel" not in names:
        raise RuntimeError(f"{_CALL} does not know how scikit-learn {sklearn.__version__} runs its fits")
    evaluate_candidates.__closure__[names.index("parallel")].cell_contents = partial(_over_ranks, settings)


def _over_ranks(settings: Mapping[str, str], delayed: Iterable[Task]) -> list[Any]:
    """The results of all calls, in their order, the same on all ranks. Collective."""
    tasks, world = list(delayed), session.world()

    def check() -> tuple[bool, Mapping[str, Any]]:
        return True, {**settings, **_described(tasks), "_seed": int(np.random.randint(_SEEDS))}

    _, reports = world.notes.agree(world.transport, _CALL, check)
    if not tasks:
        return []
    dealt = _Dealt(tasks, world.size)
    found = map_reduce(lambda _, task: [alone(partial(_run, task))], None, dealt, reduce=add)
    np.random.seed(reports[min(reports)]["_seed"])  # what follows is the fit of the best estimator, on each rank
    return [result for _, result in sorted(zip(dealt.order, found, strict=True), key=lambda pair: pair[0])]


def _run(task: Task) -> Any:
    """The result of one call, in the configuration of scikit-learn that is current."""
    return Parallel(n_jobs=1)([task])[0]


class _Dealt:
    """Calls as chunks. Ranks do about equal runs of chunks, and neighbours in the grid cost about the same.

    So each run has every n-th call, for n ranks.
    """

    def __init__(self, tasks: list[Task], ranks: int) -> None:
        self._tasks = tasks
        self.order = sorted(range(len(tasks)), key=lambda number: (number % ranks, number))
        """The number of each chunk's call."""

    def chunks(self) -> int:
        return len(self._tasks)

    def slice(self, i: int) -> Task:
        return self._tasks[self.order[i]]


def _described(tasks: list[Task]) -> dict[str, str]:
    """Return what must be the same on all ranks."""
    splits, candidates, found = hashlib.sha256(), [], {}
    values: dict[str, dict[str, None]] = {}
    for _, (estimator, *_), given in tasks:
        parameters = estimator.get_params()
        found = {"the estimator": type(estimator).__name__}
        found |= {f"the parameter {name}": _shown(value) for name, value in parameters.items()}
        if any(_is_of_own_rows(*one) for one in {**parameters, **given["parameters"]}.items()):
            raise ValueError("each rank has all rows in a search: rows='mine' is not for it, use rows='shard'")
        candidate = {name: _shown(value) for name, value in given["parameters"].items()}
        candidates.append(candidate)
        for name, text in candidate.items():
            values.setdefault(name, {})[text] = None
        for part in (given["train"], given["test"]):
            splits.update(np.ascontiguousarray(part).data)
    for _, (_, X, y), given in tasks[:1]:
        rows = {"X": X, "y": y, "the parameters of fit": given["fit_params"]}
        found |= {name: _fingerprint(value, name) for name, value in rows.items()}
    return {**found, **{f"the candidates of {name}": _shortened(", ".join(some)) for name, some in values.items()},
            "candidates": f"{checksum(candidates):08x}",
            "splits (has cv a random_state?)": splits.hexdigest()[:_SHOWN]}  # fmt: skip


def _shown(value: Any) -> str:
    """`value`, or its class and a checksum: the texts of other objects may differ between ranks."""
    is_plain = all(map(_is_plain, value)) if isinstance(value, (list, tuple)) else _is_plain(value)
    return _shortened(repr(value)) if is_plain else f"{type(value).__name__} {checksum(value):08x}"


def _shortened(text: str) -> str:
    """`text`, or its beginning and a checksum."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... {checksum(text):08x}"


def _is_of_own_rows(name: str, value: Any) -> bool:
    return name.rpartition("__")[2] == "rows" and isinstance(value, str) and value == "mine"


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str, np.generic))


def _fingerprint(value: Any, name: str) -> str:
    """The class of `value` and a checksum, with a warning where that does not know all that is in it."""
    found = Checksum()
    found.add(value)
    if found.unknown and session.is_lowest():
        what = f"{name} between ranks: it holds values of class {found.unknown}"
        warnings.warn(f"{_CALL} cannot compare {what}", RuntimeWarning, stacklevel=2)
    return f"{type(value).__name__} {found.number:08x}"

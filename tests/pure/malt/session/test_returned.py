"""What the text of a function shows of what it returns: named before the function is called."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn import neighbors
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsClassifier

from malt.session.running.returned import check_returned


def by_name(X, y):
    model = KNeighborsClassifier()
    model.fit(X, y)
    return model


def by_a_call(X, y):
    return 1, [neighbors.KNeighborsClassifier(n_neighbors=3).fit(X, y)]


def imported(X, y):
    from sklearn.neighbors import KNeighborsRegressor as Regressor

    if len(X):
        return None
    return {"model": Regressor()}


def annotated(X) -> KNeighborsClassifier:
    return X


def gives_a_set(X):
    return {one + 1 for one in X}


def gives_a_generator(X):
    return (one for one in X)


@pytest.mark.parametrize("function, what", [
    (by_name, "by_name returns model, a KNeighborsClassifier"), (by_a_call, "by_a_call returns a KNeighborsClassifier"),
    (imported, "imported returns a KNeighborsRegressor"), (gives_a_set, "gives_a_set returns a set"),
    (annotated, "annotated returns a KNeighborsClassifier"),
    (gives_a_generator, "gives_a_generator returns a generator"),
])  # fmt: skip
def test_what_cannot_be_returned(function, what):
    with pytest.raises(TypeError) as raised:
        check_returned(function)
    assert str(raised.value).startswith(f"malt.run: {what}, which cannot be sent: ") and "\n" not in str(raised.value)


def fits(X, y):
    model = Ridge()
    return model.fit(X, y)


def of_several(X):
    model = KNeighborsClassifier()
    model = model.fit(X, X).predict(X)
    return model


def of_an_attribute(X):
    return KNeighborsClassifier().fit(X, X).classes_, KNeighborsClassifier().predict(X)


def within(X):
    def inner():
        return KNeighborsClassifier()

    return inner().predict(X)


def given(KNeighborsClassifier):
    return KNeighborsClassifier()


def arrays(X):
    return np.ndarray(3), dict(a=1), [len(X), *X], np.asarray(X)


@pytest.mark.parametrize("function", [fits, of_several, of_an_attribute, within, given, arrays, print, lambda: {1}])
def test_of_other_results_nothing_is_said(function):
    check_returned(function)

"""The first centres: those of a file, or greedy k-means++ over all rows (Arthur and Vassilvitskii, 2007)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import malt
from apps.harness import by_rank, load_model
from apps.kmeans import kernels
from apps.kmeans.kernels import Floats
from apps.kmeans.points import Dealt, transposed


def load(path: str, shape: tuple[int, int]) -> Floats:
    """The centres of a saved model. OSError, ValueError: the file has none, or others than of this shape."""
    centres: Floats = load_model(path, "apps.kmeans").get("centres", np.empty(0))
    if centres.ndim != 2 or centres.dtype != np.float64 or not np.isfinite(centres).all():
        raise ValueError(f"{path}: not a model of apps.kmeans")
    if centres.shape != shape:
        there, here = (
            f"{clusters:,} clusters of {features:,} features" for clusters, features in (centres.shape, shape)
        )
        raise ValueError(f"{path}: a model of {there}, not of {here} as here")
    return centres


def first_centres(dealt: Dealt, clusters: int, seed: int) -> Floats:
    """Rows of the data, each drawn in proportion to the squared distance to the nearest one before. Collective.

    As in scikit-learn the best one is taken of 2 + log(clusters) that are drawn: the same on all ranks.
    """
    while (found := _drawn(dealt, clusters, np.random.default_rng(seed))) is None:
        dealt.renew()
    return np.array([dealt.row(number) for number in found])


def _drawn(dealt: Dealt, clusters: int, generator: np.random.Generator) -> list[int] | None:
    """The numbers of the rows; None if a rank has failed. Collective."""
    closest, trials = np.full(len(dealt.numbers), np.inf), 2 + int(math.log(clusters))
    offers: list[int] = [int(generator.integers(dealt.count))]
    chosen: list[int] = []
    ranks: list[int] = []
    while True:
        near = _nearer(dealt, offers, closest)
        reports = by_rank(near.sum(axis=1).tolist())
        ranks = ranks or list(reports)
        best = int(np.argmin(np.sum(list(reports.values()), axis=0)))
        chosen.append(offers[best])
        if len(chosen) == clusters:
            return chosen
        closest = near[best]
        drawn = by_rank(_mine(dealt, closest, _draws(reports, best, generator.random(trials))))
        if list(reports) != ranks or list(drawn) != ranks:
            return None
        offers = [number for theirs in drawn.values() for number in theirs]
        offers = offers or [int(generator.integers(dealt.count))]  # all rows lie on chosen ones


def _nearer(dealt: Dealt, offers: list[int], closest: Floats) -> Floats:
    """The squared distances of this rank's rows to the nearest centre, with each of the rows offered. Local."""
    near = np.empty((len(offers), len(closest)))
    kernels.closer(dealt.points, *transposed(np.array([dealt.row(number) for number in offers])), closest, near)
    return near


def _draws(reports: dict[int, Any], best: int, uniform: Floats) -> list[list[float]]:
    """The numbers drawn, each as a rank and what is left of it there. Local, the same on all ranks."""
    ends = np.cumsum([sums[best] for sums in reports.values()])
    points = uniform * ends[-1] if ends[-1] > 0 else uniform[:0]
    places = np.searchsorted(ends, points, side="right").clip(max=len(ends) - 1)
    before = np.append(0.0, ends)[places]
    return [[list(reports)[place], point] for place, point in zip(places, points - before, strict=True)]


def _mine(dealt: Dealt, closest: Floats, draws: list[list[float]]) -> list[int]:
    """The numbers of the rows of this rank that were drawn. Local."""
    ends = np.cumsum(closest)
    points = [point for owner, point in draws if owner == malt.rank()]
    places = np.searchsorted(ends, points, side="right").clip(max=len(ends) - 1)
    return [int(dealt.numbers[place]) for place in places]

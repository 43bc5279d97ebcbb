"""Measures how well clusters of vectors match communities."""

from __future__ import annotations

from typing import Any

from apps.embed.graph import Numbers

_STARTS = 10


def agreement(vectors: Any, communities: Numbers) -> float | None:
    """The normalized mutual information of the communities with as many clusters by k-means: 1 if they agree. Local.

    None: scikit-learn, which finds the clusters, is not installed.
    """
    try:
        from sklearn.cluster import KMeans
        from sklearn.metrics import normalized_mutual_info_score
    except ImportError:
        return None
    clusters = KMeans(int(communities.max()) + 1, n_init=_STARTS, random_state=0).fit_predict(vectors)
    return float(normalized_mutual_info_score(communities, clusters))

"""Functions that tests call on ranks by malt.run, which imports this module there."""

import os
import signal
import sys

import numpy as np

import malt


def scaled(x, factor):
    """What came, what this rank makes of it, and what it prints."""
    x *= factor[0]
    total = x.copy()
    malt.allreduce(total, "sum")
    print("from", malt.rank(), len(sys.stdin.read()), flush=True)
    inherited = os.environ.get("SET_BY_MPI")
    return {"rank": malt.rank(), "x": x, "total": total, "pair": (None, [np.float32(0.5)]), "inherited": inherited}


def fails(rank):
    if malt.rank() == rank:
        raise KeyError("the reason")
    malt.barrier()


def fails_alone():
    """Rank 1 fails, and the others go on."""
    if malt.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    malt.barrier()
    return malt.alive()


def exits(status):
    sys.exit(status)


def ends_at_once():
    """Rank 1 does, with nothing that MPI would see."""
    if "1" in (os.environ.get("PMIX_RANK"), os.environ.get("PMI_RANK")):
        os._exit(0)


def makes_a_set():
    """What its text does not show."""
    return malt.rank(), set(range(2)) if malt.size() else None


def finds_neighbours(X, y):
    from sklearn.neighbors import KNeighborsClassifier

    model = KNeighborsClassifier()
    return {"model": model.fit(X, y)}


def scaled_frame(scaler, rows):
    found = rows[["a", "b"]].copy()
    found[:] = scaler.transform(found)
    return found


def classifies(rows, scaler):
    """A classifier that all ranks have trained, and what it says of each row."""
    from malt.sklearn import LogisticRegression

    X = scaled_frame(scaler, rows)
    model = LogisticRegression(max_iter=50).fit(X, rows["name"])
    found = rows[["name"]].copy()
    found["guess"] = model.predict(X)
    return model, found


def calls_again():
    return malt.run(fails, 1, (1,))

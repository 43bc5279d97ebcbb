"""As tests/faults/test_interrupted_merges.py, with a rank on each of two hosts. In the long form alone."""

import pytest
from failing_jobs import LONG
from interrupted_jobs import PROGRAM, check, words

pytestmark = pytest.mark.skipif(not LONG, reason="make faults")

CASES = [
    (kind, sync, size)
    for kind in ("vector", "rows", "models", "changes")
    for sync in ("asp", "ssp:1", "bsp", "notify-ack")
    for size in ((1_000, 500_000) if (kind, sync) == ("vector", "bsp") else (500_000,))
]


@pytest.mark.parametrize(("kind", "sync", "size"), CASES)
def test_each_model_that_is_saved_is_whole(kind, sync, size, hosts):
    merges = 50 if size > 1_000 else 5
    arguments = words("/tmp/model.npz", kind, sync, 200, merges, size)
    done = hosts.malt("a", "-n", "2", "--hosts", "a:1,b:1", "-c", PROGRAM, *arguments, limit_s=600)
    assert done.returncode == 0, done.stderr
    print(kind, sync, size, check(done.stdout, 200, merges))
    hosts.until_clean()

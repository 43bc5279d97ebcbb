"""What tests of checkpoints share."""

import numpy as np
import pytest

import malt


def common_path(folder):
    """The path of a checkpoint, the same on all ranks. Collective. `folder`: of this rank's own."""
    name = np.frombuffer(str(folder / "train.ckpt").encode().ljust(500), np.uint8).copy()
    malt.init().transport.broadcast(name)
    malt.barrier()
    return name.tobytes().decode().rstrip()


def same_error(call, kind=ValueError):
    """Return the error of call(); check that it is the same on all ranks."""
    with pytest.raises(kind) as raised:
        call()
    texts = malt.init().transport.allgather(str(raised.value).encode())
    assert len(set(texts)) == 1 and b"\n" not in texts[0]
    return str(raised.value)

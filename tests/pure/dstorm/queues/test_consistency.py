"""The modes, as data."""

import pytest

from dstorm import parse


@pytest.mark.parametrize(
    ("sync", "at_step_9", "acknowledges", "in_flight"),
    [("asp", 0, False, 2), ("ssp:0", 9, False, 2), ("ssp:3", 6, False, 2), ("ssp:20", 0, False, 2), ("bsp", 9, True, 2),
     ("notify-ack", 0, True, 1)],
)  # fmt: skip
def test_what_each_mode_waits_for(sync, at_step_9, acknowledges, in_flight):
    mode = parse(sync)
    assert mode.name == sync
    assert mode.awaited_step(9) == at_step_9
    assert mode.acknowledges == acknowledges
    assert mode.unacknowledged(depth=2) == in_flight


@pytest.mark.parametrize("sync", ["ssp", "ssp:", "ssp:-1", "ssp:x", "ssp:1.5", "ssp:²", "BSP", "", "async", "asp:1"])
def test_unknown_modes_are_refused_with_the_valid_ones(sync):
    with pytest.raises(ValueError, match=r'is not valid: use "asp", "ssp:S"'):
        parse(sync)


def test_not_a_string():
    with pytest.raises(TypeError, match="sync must be a string"):
        parse(3)

"""The compiled kernels, run as Python under every interleaving, and proof that each of their checks is needed."""

import ctypes
import struct

import numpy as np
import pytest
from mutation import plant
from schedules import (
    CAPACITY,
    OneEnd,
    RecordingMemory,
    ReplayedWindow,
    Violation,
    arrival_orders,
    every_schedule,
    layout,
)

from dstorm import Queues
from dstorm.queues.calls import compiled
from dstorm.queues.consistency import ASP

pytest.importorskip("numba")
kernels = pytest.importorskip("dstorm.queues.calls.kernels")


class Pointer:
    """Floats at an address. Looks at the first and the third are accesses to the window."""

    def __init__(self, address, window):
        self._floats = (ctypes.c_float * (CAPACITY // 4)).from_address(int(address))
        self._window = window

    def __getitem__(self, place):
        if place % 2 == 0 and self._window is not None:
            self._window.access()
        return np.float32(self._floats[place])

    def __setitem__(self, place, value):
        self._floats[place] = value


class Machine:
    """What the kernels do to memory, in Python. `window`: of the rank that runs.

    Copies are stores past the caches: a plain fence orders stores of words alone.
    """

    window = None
    _is_due = _is_past_caches = False
    """Whether a stage ends before the next word is stored; whether a copy was made that no fence has ordered."""

    def load(self, address, place):
        return np.uint64(ctypes.c_uint64.from_address(int(address) + 8 * int(place)).value)

    def store(self, address, place, word):
        if self._is_due:
            self.store_fence()
        ctypes.c_uint64.from_address(int(address) + 8 * int(place)).value = int(word)

    def fence(self):
        self._is_due = not self._is_past_caches

    def store_fence(self):
        self._is_due = self._is_past_caches = False
        self.window.sync()

    def copy(self, target, source, nbytes):
        self._is_due, self._is_past_caches = False, True
        ctypes.memmove(int(target), int(source), int(nbytes))

    def pointer(self, address, like):
        return Pointer(address, self._window_of(address))

    def read(self, at):
        if self._window_of(at) is not None:
            self.window.access()
        return self.read_header(at)

    def _window_of(self, address):
        """The window, if a peer writes to this address while the rank runs."""
        if not isinstance(self.window, ReplayedWindow):
            return None
        start = self.window.addresses[1]
        return self.window if start <= address < start + self.window.memory.nbytes else None


def check(*words):
    numbers = [struct.unpack("@d", struct.pack("@Q", int(word)))[0] for word in words[5:]]
    return np.uint64(hash((*map(int, words[:5]), *numbers)) % 2**64)


@pytest.fixture
def machine(monkeypatch):
    """The kernels in Python."""
    machine = Machine()
    for name in ("_kernel", "_inlined"):
        monkeypatch.setattr(kernels, name, lambda function: function)
    for name, one in list(vars(kernels).items()):
        if hasattr(one, "py_func"):
            monkeypatch.setattr(kernels, name, one.py_func)
    for name in ("load", "store", "fence", "store_fence", "copy", "pointer"):
        monkeypatch.setattr(kernels, f"_{name}", getattr(machine, name))
    machine.read_header = kernels._read
    monkeypatch.setattr(kernels, "_read", machine.read)
    monkeypatch.setattr(kernels, "check", check)
    interpreted = compiled.Kernels(lambda *words: kernels.scatter(*words), kernels.gather_f4, kernels)
    monkeypatch.setattr(compiled, "kernels", lambda kind: interpreted)
    return machine


def ready(rank, window, depth):
    queues = Queues(OneEnd(rank, window), layout(depth), ASP, 1.0)
    array = np.zeros(CAPACITY // 4, np.float32)
    outs, ins = ((tuple(one),) for one in (queues.outbox.edges, queues.inbox.edges))
    return queues, array, compiled.calls(queues, array, outs, ins)


def recorded(machine, messages, depth, cut_headers):
    """The stages of as many compiled scatters."""
    sizes = [layout(depth).window_nbytes(rank) for rank in (0, 1)]
    window = machine.window = RecordingMemory(*sizes, cut_headers, zeroed=False)
    _, array, calls = ready(0, window, depth)
    for number in range(1, messages + 1):
        array[:] = number
        assert calls.send(number, 1.0, 1.0) == (CAPACITY, 0.5)
    machine.store_fence()
    return [stage for stage in window.stages if stage]


def play(machine, pieces, messages, depth, schedule):
    """Merges while pieces arrive, and one when all is quiet; Violation where the promises do not hold."""
    window = machine.window = ReplayedWindow(layout(depth).window_nbytes(1), pieces, schedule)
    window.addresses = dict.fromkeys((0, 1), window.memory.__array_interface__["data"][0])
    queues, array, calls = ready(1, window, depth)
    steps = []
    for is_quiet in (False, True):
        if is_quiet:
            window.finish()
        array[:] = 0
        found = calls.merge(lambda: [0], is_mean=True)
        if found is None:
            if array.any() or is_quiet:
                raise Violation("nothing was merged, it says")
            continue
        steps += found[1]
        if (array != (found[1][0] / 2 if found[1] else 0)).any():
            raise Violation(f"{array} of messages {found[1]}")
    if steps != sorted(set(steps)) or messages not in steps:
        raise Violation(f"messages twice, or not the newest: {steps}")
    seen = queues.statistics()
    if (seen.gathered, seen.gathered + seen.overwritten, seen.pending) != (len(steps), messages, 0):
        raise Violation(f"sent {messages}, but the account says {seen}")


def explore(machine, messages, depth, cut_headers=False):
    count = 0
    stages = recorded(machine, messages, depth, cut_headers)
    orders = (
        arrival_orders(stages) if messages < 3 and not cut_headers else [[piece for stage in stages for piece in stage]]
    )
    for pieces in orders:
        for schedule in every_schedule():
            play(machine, pieces, messages, depth, schedule)
            count += 1
    return count


SCENARIOS = [
    dict(messages=2, depth=1),
    dict(messages=2, depth=1, cut_headers=True),
    dict(messages=3, depth=2),
]


@pytest.mark.thorough(but="depth 1")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=["depth 1", "depth 1, cut headers", "depth 2"])
def test_every_schedule_keeps_the_promises(scenario, machine):
    assert explore(machine, **scenario) > 50


MUTANTS = {
    "no mark": ("scatter", "if in_flight == _0:", "if False:"),
    "no store fence before the payload": ("scatter", "_store_fence()\n    for", "_fence()\n    for"),
    "no store fence after it": ("scatter", "_store_fence()\n    _mark(table, step, _WHOLE,",
                               "_fence()\n    _mark(table, step, _WHOLE,"),
    "no second look": ("_gather", "if not is_sound or again != number or state != _WHOLE:", "if False:"),
    "no undo": ("_gather", "_copy(_load(table, ARRAY), _load(table, BEFORE), _load(table, NBYTES))", "pass"),
    "a second look at the state alone": ("_gather", "again != number or ", ""),
    "taken again": ("_find_newest", "is_new = newest > settled", "is_new = newest > _0"),
    "a header that is not checked": ("_read", "is_sound and found == check(", "is_sound or check("),
}  # fmt: skip


@pytest.mark.thorough(but="no undo")
@pytest.mark.parametrize("mutant", MUTANTS)
def test_some_schedule_catches(mutant, machine, monkeypatch):
    name, healthy, sick = MUTANTS[mutant]
    plant(monkeypatch, *((machine, "read_header") if name == "_read" else (kernels, name)), (healthy, sick))
    with pytest.raises(Violation):
        for scenario in SCENARIOS:
            explore(machine, **scenario)

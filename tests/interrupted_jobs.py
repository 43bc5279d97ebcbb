"""A job whose rank 0 is interrupted again and again, at random moments, and saves its model each time, as
docs/guide/failures.md has it; all models that it saves must be whole."""

import json

PROGRAM = r"""
import json, os, random, signal, sys, time
import numpy as np
path, kind, sync, signals, merges, size = *sys.argv[1:4], *map(int, sys.argv[4:7])
if kind == "compiled":
    import numba
import malt

STEP, END = 2.0**-12, -1000.0
world = malt.init(deadline_s=60)
w = np.ones(size, np.float32)
half = {"a": w[: size // 2], "b": w[size // 2 :]}
checkpoint = malt.Checkpoint(path, every_s=1e9)
if kind in ("models", "changes"):
    average = {"models": "model", "changes": "delta"}[kind]
    shared = malt.Replica(half, every=1, average=average, sync=sync, graph="all")
    exchange = shared.step
else:
    shared = malt.vector(w.reshape(-1, 10), sync=sync, kind="sparse") if kind == "rows" else malt.vector(w, sync=sync)
    done = 0
    def exchange():
        "What is left of one that was interrupted goes first: peers wait for the gather."
        global done
        if shared.step == done:
            shared.scatter()
        shared.gather(malt.AVG)
        done = shared.step

MERGES = ("merging/merge.py", "sparse/merge.py", "queues/calls/compiled.py", "replica/modes/change_sums.py")
came = within = 0
handler = signal.getsignal(signal.SIGINT)
def noted(number, frame):
    global came, within
    came += 1
    at = frame
    while at is not None and not at.f_code.co_filename.endswith(MERGES):
        at = at.f_back
    within += at is not None
    handler(signal.SIGINT, frame)

def train():
    global w
    w += STEP
    exchange()
    if w.flat[0] > 1.4:
        w[:] = 1.0  # so that sums of two are told from means

def torn(values):
    "What is not that of a whole merge: all weights are alike, and of two models the mean, not the sum."
    first = values.flat[0]
    return not (values == first).all() or not 0.9 < first < 1.6

if malt.rank() != 0:
    while w.flat[0] > 0:
        train()
    shared.close()
    sys.exit()

signal.signal(signal.SIGALRM, noted)  # by a timer: a thread would wait for this one to let go of the interpreter
chance, bad, took = random.Random(1), [], 0.0
for _ in range(10):
    start = time.perf_counter()
    train()
    took = max(took, time.perf_counter() - start)  # one that merges: under asp not each does
while came < signals or (within < merges and came < 20 * signals):
    try:
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 2 * took))
        while True:
            train()
    except KeyboardInterrupt:
        checkpoint.save({"w": w}, force=True)
    with np.load(path) as file:
        [saved] = [file[name] for name in file.files if file[name].size == size]
    if torn(saved):
        bad.append(np.unique(saved)[:5].tolist())
for _ in range(2):  # the first is what may be left of one that was interrupted
    w[:] = END
    exchange()
shared.close()
os.unlink(path)
print(json.dumps({"signals": came, "within": within, "torn": bad}), flush=True)
"""


def words(path, kind, sync, signals, merges, size=500_000):
    """The arguments of PROGRAM: `signals` at least, of which `merges` at least come within a merge."""
    return [str(one) for one in (path, kind, sync, signals, merges, size)]


def check(output, signals, merges):
    """Check what PROGRAM has printed, and return it."""
    [found] = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert not found["torn"], found
    assert found["signals"] >= signals and found["within"] >= merges, found
    return found

"""malt.optim: minima known from elsewhere, the same iterates on arrays and sharded vectors, steps against twins."""

import math
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize
from sklearn.neural_network import _stochastic_optimizers as optimizers

import malt
from malt.optim import line_search
from malt.optim.line_search import Trial
from malt.optim.owlqn import _downward
from vol.sharded.scalars import Scalars

X = np.random.default_rng(0).normal(size=(60, 12))
Y = np.sign(X @ np.random.default_rng(1).normal(size=12) + np.random.default_rng(2).normal(size=60))


def logistic(w, l2=0.01, rows=slice(None)):
    """The mean loss of all rows, or the part of it that `rows` add, and its gradient."""
    margins = Y[rows] * (X[rows] @ w)
    gradient = -X[rows].T @ (Y[rows] / (1 + np.exp(margins))) / len(Y)
    return np.logaddexp(0, -margins).sum() / len(Y) + l2 / 2 * (w @ w), gradient + l2 * w


def rosenbrock(w):
    gradient = np.zeros_like(w)
    inner = w[1:] - w[:-1] ** 2
    gradient[:-1] = -400 * w[:-1] * inner - 2 * (1 - w[:-1])
    gradient[1:] += 200 * inner
    return (100 * inner**2 + (1 - w[:-1]) ** 2).sum(), gradient


def sharded_logistic(w, g):
    """The same of a sharded `w`: each rank computes its rows, and pushes to `g`."""

    def function(point):
        malt.barrier()
        whole = point.pull()
        g.fill(0)
        malt.barrier()
        loss, gradient = logistic(whole, l2=0.0, rows=malt.shard(len(Y)))
        g.push(gradient)
        malt.barrier()
        total = np.array(loss)
        malt.allreduce(total, "sum")
        return float(total) + 0.005 * point.dot(point), g + 0.01 * point

    return function


class TestLbfgs:
    @pytest.mark.parametrize("function, size", [(logistic, 12), (rosenbrock, 2), (rosenbrock, 20)])
    @pytest.mark.parametrize("m", [1, 10])
    def test_minima_are_those_of_scipy(self, function, size, m):
        w, seen = np.full(size, -0.5), []
        result = malt.optim.lbfgs(function, w, m=m, tolerance=1e-9, callback=seen.append)
        options = {"ftol": 0, "gtol": 1e-9}
        known = scipy_minimize(function, np.full(size, -0.5), jac=True, method="L-BFGS-B", options=options)
        assert result.reason == "converged" and result.iterations == len(seen) and seen[-1].value == result.value
        assert result.value == function(w)[0] == pytest.approx(known.fun, rel=1e-9, abs=1e-12)
        assert all(later.value <= before.value + 1e-14 for before, later in pairwise(seen))
        if m == 10:
            assert result.evaluations < 1.5 * known.nfev + 10

    def test_directions_are_those_of_the_two_loops(self):
        """Also where the function returns the same array each time."""
        w, points, same = np.full(5, -0.5), [np.full(5, -0.5)], np.empty(5)

        def function(w):
            value, same[:] = rosenbrock(w)
            return value, same

        malt.optim.lbfgs(function, w, m=3, callback=lambda _: points.append(w.copy()))
        gradients = [rosenbrock(point)[1] for point in points]
        for k in range(1, len(points) - 3):
            q = gradients[k].copy()
            pairs = [(points[i + 1] - points[i], gradients[i + 1] - gradients[i]) for i in range(max(k - 3, 0), k)]
            parts = []
            for s, y in reversed(pairs):
                parts.append(s @ q / (s @ y))
                q -= parts[-1] * y
            s, y = pairs[-1]
            q *= s @ y / (y @ y)
            for (s, y), part in zip(pairs, reversed(parts), strict=True):
                q += (part - y @ q / (s @ y)) * s
            moved = points[k + 1] - points[k]
            assert -q @ moved == pytest.approx(np.linalg.norm(q) * np.linalg.norm(moved), rel=1e-9)

    @pytest.mark.parametrize("size", [1, 3, 4])
    def test_sharded_iterates_are_those_of_arrays(self, size):
        whole, seen = np.zeros(12), []
        wanted = malt.optim.lbfgs(logistic, whole, m=3, callback=lambda one: seen.append((one.value, whole.copy())))

        def live(rank):
            w, g, mine, sent = malt.sharded(12, "float64"), malt.sharded(12, "float64"), [], []

            def scalars(vector):
                total = vector.statistics()
                return total.bytes_sent - sum(edge.bytes_sent for edge in total.peers.values())

            def after(result):
                mine.append((result.value, w.pull()))
                sent.append(scalars(w) + scalars(g))

            result = malt.optim.lbfgs(sharded_logistic(w, g), w, m=3, callback=after)
            assert result[2:] == wanted[2:] and result.value == pytest.approx(wanted.value, rel=1e-12)
            for (value, point), (other, its) in zip(mine, seen, strict=True):
                assert value == pytest.approx(other, rel=1e-10)
                np.testing.assert_allclose(point, its, rtol=1e-6, atol=1e-9)
            return sent, result.evaluations - result.iterations

        (sent, more), *others = malt.simulate(live, size)
        assert all(other[0] == sent for other in others)
        assert more <= 2  # trials beyond the first
        numbers = [(later - before) / 8 / max(size - 1, 1) for before, later in pairwise(sent)]
        assert size == 1 or min(numbers[4:]) == 2 * 3 + 3 + 1  # and one for the penalty of the function

    @pytest.mark.parametrize("minimize", [malt.optim.lbfgs, partial(malt.optim.owlqn, l1=0.0)])
    def test_an_iteration_takes_two_exchanges(self, minimize, monkeypatch):
        """Beside that of the function."""
        calls, after, of_all = [], [], Scalars.of_all
        monkeypatch.setattr(Scalars, "of_all", lambda *given: [calls.append(None), of_all(*given)][1])

        def live(rank):
            w = malt.sharded(12, "float64")
            w.local[:] = np.arange(1.0, 13.0)
            minimize(lambda w: ((w * w).dot(w * w) / 4, w * w * w), w, callback=lambda _: after.append(len(calls)))

        malt.simulate(live, 1)
        assert min(np.diff(after)) == 3

    def test_it_stops_where_it_is_not_finite(self):
        for function, least in (
            (lambda w: (math.nan, w), 0), (lambda w: (1.0, w * math.inf), 0),
            (lambda w: (float(-w.sum()) if w.sum() < 5 else math.nan, -np.ones_like(w)), 0),
        ):  # fmt: skip
            w = np.ones(3)
            result = malt.optim.lbfgs(function, w)
            assert result.reason == "the loss, or its gradient, is not finite" and result.iterations >= least
            assert np.isfinite(w).all() and w.sum() < 5

    def test_it_says_why_it_ends(self):
        assert malt.optim.lbfgs(rosenbrock, np.zeros(5), max_iterations=3).reason == "3 iterations were made"
        assert malt.optim.lbfgs(lambda w: (0.0, w * 0), np.ones(5)).reason == "converged"
        for minimize in (malt.optim.lbfgs, lambda *given, **more: malt.optim.owlqn(*given, **more, l1=0.1)):
            for two in (2, np.float64(2)):  # NumPy compares by truth values of its own
                ended = minimize(rosenbrock, np.zeros(5), callback=lambda result, two=two: result.iterations == two)
                assert ended.reason == "the callback ended it" and ended.iterations == 2
        upward = malt.optim.lbfgs(lambda w: (float(w @ w), -w), w := np.ones(5))
        assert upward.reason == "no step along the direction lowers the loss" and np.allclose(w, 1)


@pytest.mark.parametrize("minimize", [malt.optim.lbfgs, partial(malt.optim.owlqn, l1=0.1)])
@pytest.mark.parametrize(
    ("gradient", "kind"),
    [(lambda w: w[:, None], ValueError), (lambda w: w[:1], ValueError), (lambda w: w.sum(), ValueError),
     (lambda w: w[None], ValueError), (lambda w: w.tolist(), TypeError)],
)  # fmt: skip
def test_a_gradient_of_another_shape_is_not_broadcast(minimize, gradient, kind):
    w = np.full(3, 2.0)
    with pytest.raises(kind, match="function must return the loss and its gradient, of"):
        minimize(lambda w: (w @ w / 2, gradient(w)), w)
    assert w.tolist() == [2, 2, 2]


def minimized(w=(), returned=0.0, **options):
    """A call of lbfgs: of w, if it is given, else of three ones, and of a function that returns `returned`."""
    return lambda: malt.optim.lbfgs(lambda w: returned, w if len(w) else np.ones(3), **options)


W = "w must be a sharded vector, or a writable array of floats, got"
"""In one line: the elements would be many; a mask would be ignored, and a matrix has other products."""
REFUSED = [
    (minimized(m=0), ValueError, ""), (minimized(tolerance=-1), ValueError, ""),
    (minimized(max_iterations=1.5), TypeError, ""), (minimized([1.0] * 10**5), TypeError, f"{W} a list$"),
    (minimized(np.ones((9, 9), int)), TypeError, f"{W} an array of int64$"),
    (minimized(np.matrix([[1.0]])), TypeError, f"{W} a matrix$"),
    (minimized(np.ma.ones(2)), TypeError, f"{W} a MaskedArray$"),
    (minimized(np.broadcast_to(1.0, 2)), TypeError, f"{W} an array of float64, which is read-only$"),
    (minimized(returned=1.0), TypeError, "function must return the loss and its gradient, got 1.0"),
    (minimized(returned=(1.0, np.zeros(3), 1)), TypeError, "function must return the loss and its gradient, got "),
    (minimized(returned=(np.ones(3), np.zeros(3))), TypeError, r"the loss must be a number, got array\("),
    (minimized(returned=(None, np.zeros(3))), TypeError, "the loss must be a number, got None"),
    *((made, ValueError, ".* out of its range") for made in (
        lambda: malt.optim.adam(0), lambda: malt.optim.adam(beta1=1), lambda: malt.optim.ftrl(l1=-1),
        lambda: malt.optim.adagrad(math.nan), lambda: malt.optim.momentum(0.1, -0.1),
        lambda: malt.optim.nesterov(math.inf),
    )),
    # a step of ftrl, which is no outer one, is not what `warmup=None` makes
    *((partial(malt.optim.adam, **{name: wrong}), TypeError, f"{name} must be an integer of at least 0, got ")
      for name, wrong in (("steps", 1.5), ("warmup", None), ("warmup", 2.0))),
]  # fmt: skip


@pytest.mark.parametrize("call, kind, message", REFUSED)
def test_what_is_refused(call, kind, message):
    with pytest.raises(kind, match=f"^{message}"):
        call()


def test_a_gradient_that_is_not_sharded_as_w_is():
    def program(rank):
        w = malt.sharded(4)
        with pytest.raises(TypeError, match="its gradient, of the kind of w, got array"):
            malt.optim.lbfgs(lambda w: (w.dot(w), np.zeros(4)), w)

    malt.simulate(program, 2)


def test_owlqn_follows_a_direction_only_where_it_leads_down():
    way, pseudo = np.array([1.0, 1.0, -1.0, -1.0, 1.0]), np.array([-2.0, 2.0, -2.0, 2.0, 0.0])
    assert _downward(way, pseudo).tolist() == [1, 0, 0, -1, 0]


def test_owlqn_goes_on_where_the_curvature_is_negative():
    w = np.array([0.5])
    result = malt.optim.owlqn(lambda w: (float(np.cos(w).sum()), -np.sin(w)), w, l1=0.0)
    assert result.reason == "converged" and w == pytest.approx(math.pi, abs=1e-5)


def test_owlqn_takes_no_step_that_lowers_the_value_by_next_to_nothing():
    """The first step has length 1: from the one side of the minimum to the other."""
    w, values = np.array([3.50001]), []
    malt.optim.owlqn(
        lambda w: (float((w - 3) @ (w - 3)), 2 * (w - 3)), w, l1=0.0, max_iterations=1,
        callback=lambda result: values.append(result.value),
    )  # fmt: skip
    assert values[0] < 1e-4


@pytest.mark.parametrize("m, most", [(2, 32), (10, 26)])
def test_owlqn_with_a_history_that_is_full(m, most):
    w = np.zeros(12)
    result = malt.optim.owlqn(logistic, w, l1=0.001, m=m, tolerance=1e-7)
    assert result.reason == "converged" and result.iterations < most


def test_owlqn_finds_the_minimum_and_its_zeros():
    def halves(both, l1):
        """The same with w = both[:12] - both[12:], which are not negative: smooth."""
        value, gradient = logistic(both[:12] - both[12:])
        return value + (l1 * both.reshape(2, 12)).sum(), np.concatenate([gradient + l1, -gradient + l1])

    for l1 in (0.0, 0.03, np.array([0.0] + [0.05] * 11)):
        bounds = [(0, None)] * 24
        options = {"ftol": 0, "gtol": 1e-10, "maxiter": 10_000}
        known = scipy_minimize(halves, np.zeros(24), (l1,), "L-BFGS-B", jac=True, bounds=bounds, options=options)
        wanted = known.x[:12] - known.x[12:]
        w = np.zeros(12)
        result = malt.optim.owlqn(logistic, w, l1=l1, tolerance=1e-7)
        assert result.reason == "converged" and result.value == pytest.approx(known.fun, rel=1e-10)
        np.testing.assert_allclose(w, wanted, atol=1e-5)
        assert (w == 0).tolist() == (np.abs(wanted) < 1e-6).tolist()
        assert 0 < (w == 0).sum() < 12 or np.isscalar(l1)

        def live(rank, l1=l1, w=w, result=result):
            mine, g, penalty = (malt.sharded(12, "float64") for _ in range(3))
            if not np.isscalar(l1):
                penalty.local[:] = l1[penalty.range]
                l1 = penalty
            found = malt.optim.owlqn(sharded_logistic(mine, g), mine, l1=l1, tolerance=1e-7)
            malt.barrier()
            np.testing.assert_allclose(mine.pull(), w, atol=1e-6)
            return found.value == pytest.approx(result.value, rel=1e-12) and (mine.pull() == 0).sum() == (w == 0).sum()

        assert all(malt.simulate(live, 3))
    assert malt.optim.owlqn(lambda w: (math.nan, w), np.ones(2), l1=1).reason.endswith("not finite")
    for l1 in (-1, np.array([0.0] * 11 + [-1]), np.full(12, math.nan)):
        with pytest.raises(ValueError, match="l1 must be at least 0 and finite, got "):
            malt.optim.owlqn(logistic, np.zeros(12), l1=l1)
    for l1 in (np.array(0.1), np.ones(1), np.ones((12, 1))):
        with pytest.raises(ValueError, match="l1 must be a number, or of shape .12,. as w, got shape "):
            malt.optim.owlqn(logistic, np.zeros(12), l1=l1)
    with pytest.raises(TypeError, match="l1 must be a number, or of the kind of w, got "):
        malt.optim.owlqn(logistic, np.zeros(12), l1=[0.1] * 12)


@pytest.mark.parametrize("function", [
    lambda a: (-a / (a * a + 2), (a * a - 2) / (a * a + 2) ** 2), lambda a: ((a - 3) ** 4, 4 * (a - 3) ** 3),
    lambda a: (math.nan, math.nan) if a > 0.3 else (a * a - a / 4, 2 * a - 0.25),
    lambda a: (math.cos(3 * a) - a, -3 * math.sin(3 * a) - 1),
])  # fmt: skip
@pytest.mark.parametrize("step", [1e-3, 0.7, 10.0, 1e3])
def test_steps_meet_the_strong_wolfe_conditions(function, step):
    start = Trial(0.0, *function(0.0))
    found, is_enough = line_search.search(lambda a: Trial(a, *function(a)), start, step)
    assert is_enough
    assert found.value <= start.value + 1e-4 * found.step * start.slope and abs(found.slope) <= 0.9 * -start.slope


def adam_twin(w, states, g, t):
    m, v = 0.9 * states[0] + (1 - 0.9) * g, 0.99 * states[1] + (1 - 0.99) * g * g
    return w - 0.1 * (m / (1 - 0.9**t)) / (math.sqrt(v / (1 - 0.99**t)) + 1e-8), (m, v)


def ftrl_twin(w, states, g, t):
    z, n = states
    z, n = z + g - (math.sqrt(n + g * g) - math.sqrt(n)) / 0.5 * w, n + g * g
    return 0.0 if abs(z) <= 0.3 else -(z - math.copysign(0.3, z)) / ((1 + math.sqrt(n)) / 0.5 + 0.1), (z, n)


STEPS = {
    "adam": (lambda: malt.optim.adam(0.1, beta2=0.99), 2, adam_twin),
    "ftrl": (lambda: malt.optim.ftrl(0.5, l1=0.3, l2=0.1), 2, ftrl_twin),
    "adagrad": (
        lambda: malt.optim.adagrad(0.1), 1,
        lambda w, s, g, t: (w - 0.1 * g / (math.sqrt(s[0] + g * g) + 1e-10), (s[0] + g * g,)),
    ),
    "momentum": (
        lambda: malt.optim.momentum(0.1, 0.5), 1,
        lambda w, s, g, t: (w + 0.5 * s[0] - 0.1 * g, (0.5 * s[0] - 0.1 * g,)),
    ),
    "nesterov": (
        lambda: malt.optim.nesterov(0.1, 0.5), 1,
        lambda w, s, g, t: (w + 0.5 * (0.5 * s[0] - 0.1 * g) - 0.1 * g, (0.5 * s[0] - 0.1 * g,)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_those_of_their_formulas(name):
    make, count, twin = STEPS[name]
    gradients = np.random.default_rng(0).normal(size=(5, 7))
    wanted = []
    for column in gradients.T:
        w, states = 0.0, (0.0,) * count
        for t, g in enumerate(column.tolist(), 1):
            w, states = twin(w, states, g, t)
        wanted.append(w)

    def live(rank):
        w, *states = (malt.sharded(7, "float64") for _ in range(count + 1))
        g, step = w.derive(), make()
        for row in gradients:
            g.local[:] = row[g.range]
            w.zip(step, *states, g)
        assert w.statistics().bytes_sent == g.statistics().bytes_sent == 0
        malt.barrier()
        return w.pull()

    for found in malt.simulate(live, 3):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    array, step, states = np.zeros(7), make(), np.zeros((count, 7))
    for row in gradients:
        assert step(array, *states, row) is None
    np.testing.assert_array_equal(array, found)


@pytest.mark.parametrize("nesterov", [False, True])
def test_an_optimizer_written_for_arrays_runs_unchanged(nesterov):
    """That of scikit-learn's neural networks."""
    values = np.random.default_rng(0).normal(size=9)

    def train(w):
        optimizer = optimizers.SGDOptimizer([w], 0.1, nesterov=nesterov)
        for _ in range(8):
            optimizer.update_params([w], [2 * w + 1])

    train(wanted := values.copy())

    def live(rank):
        w = malt.sharded(9, "float64")
        w.local[:] = values[w.range]
        train(w)
        malt.barrier()
        return w.pull()

    for found in malt.simulate(live, 3):
        np.testing.assert_array_equal(found, wanted)

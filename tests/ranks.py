"""Simulated ranks on hosts as named, each of which ends by itself; what all ranks do, or threads at once."""

import functools
import threading
from inspect import Parameter, signature

import pytest

import malt
from dstorm import Group, SimulatedTransport
from dstorm.membership.resilient import SurvivingTransport
from malt.session import session
from malt.session.world.endings import TolerantEnding
from malt.session.world.world import World


def run_ranks(function, hosts="a"):
    """function(transport) on a rank for each letter of `hosts`; by rank what it returned, or the error it raised."""

    def live(rank):
        transport = SimulatedTransport(group, rank)
        transport.hosts = tuple(hosts)
        try:
            return function(transport)
        except Exception as error:
            return error

    group = Group(len(hosts))
    return group.run(live)


def on_all_ranks(test):
    """A test with an argument `rank`: it runs on all ranks, those of this job or simulated ones."""

    @functools.wraps(test)
    def run(*method_of, everywhere, **given):
        everywhere(lambda rank: test(*method_of, rank=rank, **given))

    others = [one for one in signature(test).parameters.values() if one.name != "rank"]
    run.__signature__ = signature(test).replace(parameters=[*others, Parameter("everywhere", Parameter.KEYWORD_ONLY)])
    return run


def at_once(function, arguments, limit_s=60):
    """Call function(one) for each of the arguments, in a thread of its own. Each of them ends in time."""
    threads = [threading.Thread(target=function, args=(one,)) for one in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(limit_s)
        assert not thread.is_alive()


def run_alone(function):
    """function(transport) on a single rank: what it returns or raises."""
    (outcome,) = run_ranks(function)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def same_error(outcomes):
    """The error that all ranks raised, which is one and the same."""
    assert all(isinstance(outcome, Exception) for outcome in outcomes), outcomes
    assert len({(type(outcome), str(outcome)) for outcome in outcomes}) == 1, outcomes
    assert "\n" not in str(outcomes[0])
    return outcomes[0]


def same_on_all(function, size, seed=0):
    """The result of function() on `size` simulated ranks: the same on all of them."""
    results = malt.simulate(lambda rank: function(), size, seed=seed)
    assert all(repr(result) == repr(results[0]) for result in results)
    return results[0]


def error_everywhere(call):
    """The error of `call`, which all ranks raise with the same text."""
    with pytest.raises(Exception) as caught:
        call()
    error = [type(caught.value).__name__, str(caught.value)]
    assert malt.allgather(error) == [error] * malt.size()
    return caught.value


def error_of_all(call, size=2):
    """The message of the ValueError or FloatingPointError that call(rank) raises, one and the same on all ranks."""

    def live(rank):
        with pytest.raises((ValueError, FloatingPointError)) as raised:
            call(rank)
        return raised.value

    return str(same_error(malt.simulate(live, size)))


def run_surviving(size, seed, failures, live):
    """Run live(transport) on ranks of which some fail, each after so many turns: the results by rank, and the failed
    ranks."""
    group = Group(size, seed, failures)

    def start(rank):
        inner = SimulatedTransport(group, rank)
        return live(SurvivingTransport(inner, inner.window(1 << 23), inner.find_failed, 5.0))

    return group.run(start), group.failed


def run_failing(size, seed, failures, live):
    """Run live(rank) in a session of ranks of which some fail: the same as of `run_surviving`."""

    def start(transport):
        session.enter_simulation(World(transport, ending=TolerantEnding()))
        return live(transport.rank)

    return run_surviving(size, seed, failures, start)


def evicting(size, live, deadline_s=5.0):
    """Run live(transport) on ranks that may be evicted: the evicted ranks. Their ends are found a second later."""
    group, killed_at = Group(size, 0), {}

    def start(rank):
        inner = SimulatedTransport(group, rank)

        def evict(other):
            group.failed.add(other)
            killed_at.setdefault(other, group.now)
            return True

        seen = lambda: [other for other in group.failed if group.now > killed_at[other] + 1]  # noqa: E731
        return live(SurvivingTransport(inner, inner.window(1 << 23), seen, deadline_s, evict=evict))

    group.run(start)
    return group.failed

"""Advice drawn from a trace, in sentences: where time goes, which ranks are waited for, and what would help."""

from __future__ import annotations

import numpy as np

from dstorm.words import count
from malt.watch.trace.reading import Trace
from malt.watch.trace.summary import ACTIVITIES, Summary

_LONG_WAIT, _MANY_OVERWRITTEN, _LONG_EXCHANGES, _OLD, _SLOW = 0.1, 0.1, 0.25, 5, 1.3
"""From when on something is worth a sentence: of the time; of the messages; of the time; in steps; times the median."""
_LONG_START, _MOST_OF = 0.2, 0.5
"""The same of the start, of the time of the run; of one peer, of what a rank waits."""
_MOST_RANKS = 4
"""The most ranks that a kind of sentence is made for."""


def advice(trace: Trace, found: Summary) -> list[str]:
    """Sentences about the run of `trace`, of which `found` is the summary, the most urgent first; at least one."""
    lines = [*_failures(found), *_waits(found), *_overwritten(found), *_exchanges(found), *_lags(found)]
    cores, hosts = trace.job.get("cores"), trace.job.get("hosts")
    if isinstance(cores, int) and not hosts and cores < trace.size:
        lines.append(f"{trace.size} ranks take turns on {count(cores, 'core')}: they also wait for a core.")
    if not lines and not found.spent.any():
        lines = ["No call is in the trace, so it does not show how ranks spent their time."]
    if not lines:
        computes = found.shares[:, ACTIVITIES.index("compute")].min()
        lines = [f"Nothing to improve: each rank computes for at least {computes:.0%} of its time."]
    start_s = found.exchanging - found.edges[0]
    if start_s > _LONG_START * found.seconds:
        lines.append(
            f"{start_s:.3g} of {found.seconds:.3g} s passed before the first exchange: ranks start, read and compile. "
            "Times refer to the rest."
        )
    if found.dropped:
        lines.append(
            f"The oldest {found.dropped:,} events were dropped. Times, waits and lag refer to the last "
            f"{found.seconds:.3g} s; bytes and messages to the whole run."
        )
    return lines


def _failures(found: Summary) -> list[str]:
    return [f"Rank {rank} failed: the others saw it {at:.3g} s after the start." for rank, at in found.failures]


def _waits(found: Summary) -> list[str]:
    shares = found.shares[:, ACTIVITIES.index("wait")]
    lines, whole = [], found.waited.sum(axis=1)
    blamed: set[int] = set()
    for place in np.argsort(-shares)[:_MOST_RANKS].tolist():
        if shares[place] < _LONG_WAIT or not whole[place]:
            continue
        peer = int(found.waited[place].argmax())
        part = min(1.0, found.waited[place, peer] / whole[place])
        if part > _MOST_OF:
            blamed.add(peer)
        lines.append(
            f"Rank {found.ranks[place]} waits {shares[place]:.0%} of its time, {part:.0%} of that for rank {peer}."
        )
    return lines + [line for peer in sorted(blamed) if (line := _why(found, peer))]


def _why(found: Summary, peer: int) -> str:
    """Return why others wait for `peer`, and what would help."""
    if peer not in found.ranks:
        return ""
    computes = found.spent[:, ACTIVITIES.index("compute")]
    mine, others = computes[found.ranks.index(peer)], np.delete(computes, found.ranks.index(peer))
    is_asp = all("sync asp" in vector for vector in found.vectors)
    usual = float(np.median(others)) if len(others) else 0.0
    if mine > _SLOW * usual > 0:
        return (
            f"Rank {peer} computes {mine / usual:.1f} times as long as the others: give it fewer rows "
            "with malt.shard(n, by_speed=True)"
        ) + ("." if is_asp else ', or let ranks run ahead with sync="ssp:4" or "asp".')
    if is_asp:
        return f"These waits for rank {peer} are in collective calls: call them less often."
    return f'Waits for rank {peer} would be shorter with sync="ssp:4" or "asp", or with fewer neighbours (graph=).'


def _overwritten(found: Summary) -> list[str]:
    arrived = found.merged + found.overwritten
    if not arrived or found.overwritten < _MANY_OVERWRITTEN * arrived:
        return []
    return [
        f"{found.overwritten / arrived:.0%} of messages were overwritten before they were merged: exchange less often "
        "(a longer interval), or gather more often. A larger depth= helps if malt.SUM merges all of them."
    ]


def _exchanges(found: Summary) -> list[str]:
    shares = found.shares[:, [ACTIVITIES.index(one) for one in ("send", "merge")]].sum(axis=1)
    place = int(shares.argmax())
    if shares[place] < _LONG_EXCHANGES:
        return []
    return [
        f"Rank {found.ranks[place]} sends and merges for {shares[place]:.0%} of its time: exchange less often, with "
        'fewer neighbours (graph="halton"), or with shorter messages (kind="sparse", wire="float16").'
    ]


def _lags(found: Summary) -> list[str]:
    count = sum(number for _, number in found.lags)
    old = sum(number for lag, number in found.lags if lag > _OLD)
    if not count or old < _LONG_WAIT * count:
        return []
    return [
        f"{old / count:.0%} of merged messages were more than {_OLD} steps behind: ranks differ in speed. "
        'sync="ssp:4" limits the lag, and malt.shard(n, by_speed=True) deals rows by speed.'
    ]

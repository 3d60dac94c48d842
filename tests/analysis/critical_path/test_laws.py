"""Laws of the critical path: random graphs against brute force, and every recorded run."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest

from tests.analysis.one_fault import CASES, file_of
from workbench.analysis.critical_path.dependencies import Builder, Dependencies
from workbench.analysis.critical_path.moments import NEVER, Moments
from workbench.analysis.critical_path.path import pace_of
from workbench.analysis.critical_path.retiming import lengths
from workbench.analysis.critical_path.spans import spans_of
from workbench.store.event_store import Store


def random_moments(seed: int) -> Moments:
    """Return a small graph whose moments were recorded when they could be at the earliest."""
    chance = random.Random(seed)
    moments = Moments()
    for moment in range(chance.randint(3, 9)):
        needs = [0] if moment == 1 else [one for one in range(moment) if chance.random() < 0.4]
        arcs = [(one, chance.randint(0, 20)) for one in needs]
        root = chance.randint(0, 5)
        moments.add(max((moments.recorded[one] + ns for one, ns in arcs), default=root))
        for one, ns in arcs:
            moments.join(one, moment, ns)
    return moments


def brute(moments: Moments, ns: list[int], end: int) -> int:
    """Return the length of the longest way to a moment, of all ways."""
    ways = [brute(moments, ns, moments.arcs[arc].source) + ns[arc] for arc in moments.into(end)]
    return max(ways, default=moments.recorded[end])


@pytest.mark.parametrize("seed", range(60))
def test_times_paths_and_slack_are_those_of_brute_force(seed: int) -> None:
    moments, chance = random_moments(seed), random.Random(-1 - seed)
    changed = [ns + chance.randint(-ns, 20) for ns in moments.ns]
    for ns in (moments.ns, changed):
        times, decides = moments.earliest(ns)
        assert times == [brute(moments, ns, end) for end in range(len(times))]
        both = moments.earliest_of_many(np.array([[one, 2 * one] for one in ns], np.float64))
        assert both[:, 0].tolist() == times
    times, decides = moments.earliest()
    assert times == moments.recorded
    end = max(range(len(times)), key=lambda one: times[one])
    path = moments.path(decides, end)
    begin = moments.arcs[path[0]].source if path else end
    assert sum(moments.ns[arc] for arc in path) == times[end] - times[begin]
    latest = moments.latest(times, [end])
    for number, arc in enumerate(moments.arcs):
        if latest[arc.target] < NEVER // 2:
            slack = latest[arc.target] - times[arc.source] - moments.ns[number]
            assert slack == 0 if number in path else slack >= 0
            for more in (slack, slack + 3):
                longer = list(moments.ns)
                longer[number] += more
                assert moments.earliest(longer)[0][end] == times[end] + more - slack


@cache
def recorded(name: str) -> tuple[Store, Dependencies]:
    store = Store.load(file_of(name))
    return store, Builder(spans_of(store.scan()), pace_of(store.metadata)).build()


@pytest.mark.parametrize("name", CASES)
def test_laws_of_every_recorded_run(name: str) -> None:
    store, graph = recorded(name)
    moments, pace = graph.moments, pace_of(store.metadata)
    assert len(moments.order) == len(moments.recorded), "no moment needs itself"
    assert min(moments.ns) >= 0
    times, _ = moments.earliest()
    assert times == moments.recorded, "nothing is changed: 0 ns"
    ends = [moment for list_of in graph.ends.values() for _, moment in list_of]
    end = max(ends, key=lambda one: times[one])
    latest = moments.latest(times, ends)
    chance = random.Random(name)
    longer = list(moments.ns)
    for number in chance.sample(range(len(longer)), 5):
        arc = moments.arcs[number]
        slack = max(0, latest[arc.target] - times[arc.source] - longer[number])
        if slack < NEVER // 2:
            alone = list(moments.ns)
            alone[number] += slack
            same, _ = moments.earliest(alone)
            assert max(same[one] for one in ends) == times[end]
        longer[number] += chance.randint(0, 10**7)
        slower, _ = moments.earliest(longer)
        assert all(after >= before for after, before in zip(slower, times, strict=True))
    for links, compute in (({way: (10**7, 0.0) for way in graph.latency}, {}), ({}, {0: 2.0})):
        slower, _ = moments.earliest(lengths(graph, pace, links, compute))
        if not links or not any(pace(*way)[1] or pace(*way)[0] > 10**7 for way in links):
            assert all(after >= before for after, before in zip(slower, times, strict=True))
    paces = {way: pace(*way) for way in graph.latency}
    assert lengths(graph, pace, paces, {0: 1.0}) == moments.ns
    assert graph.lost == graph.early == 0

"""Ranks in hosts: which links are between hosts, which levels a group has, what cannot be."""

from __future__ import annotations

import textwrap
from math import prod
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench import laws
from workbench.analysis.curves import Curves
from workbench.analysis.measures import beside, of, to_other_hosts
from workbench.choosing.costs import Costs, Links, links_of, load
from workbench.common import topology
from workbench.common.errors import SpecError
from workbench.interface import form
from workbench.shared_memory.control_block import Control
from workbench.studies.speed_up.cases import cases
from workbench.theory import cost_model
from workbench.views.pages.facts import facts
from workbench.views.pages.link_facts import emulated, link_notes

FAR = wb.Link(latency="1 ms", bandwidth="1 Gbit/s")
TWO_HOSTS = wb.Network(levels=(4, 2), between=FAR)
factors = st.lists(st.integers(1, 4), min_size=1, max_size=4).filter(lambda p: prod(p) <= 48)


# ---- levels


@given(factors, st.data())
def test_a_rank_s_place_says_at_which_level_it_differs(
    levels: list[int], data: st.DataObject
) -> None:
    """Both are the digits of a number whose k-th digit is below the k-th of ``levels``."""
    places = st.tuples(*(st.integers(0, p - 1) for p in levels))
    a, b = data.draw(places), data.draw(places)
    widths = [prod(levels[:k]) for k in range(len(levels))]
    ranks = [sum(p * width for p, width in zip(one, widths, strict=True)) for one in (a, b)]
    differ = [k for k in range(len(levels)) if a[k] != b[k]]
    assert topology.level(levels, *ranks) == max(differ, default=0)


@pytest.mark.parametrize(
    ("levels", "ranks", "expected"),
    [
        ((4, 2), range(8), (4, 2)),
        ((4, 2), [0, 1, 4, 5], (2, 2)),
        ((4, 2), [4, 5, 0, 1], (2, 2)),
        ((4, 2), [0, 1, 2, 3], (4, 1)),
        ((4, 2), [0, 4], (1, 2)),
        ((4, 2), [0, 1, 2, 4], (4,)),  # three and one: no hosts that are alike
        ((4, 2), [0, 4, 1, 5], (4,)),  # not neighbors
        ((2, 2, 2), [0, 2, 4, 6], (1, 2, 2)),
        ((2, 2, 2), [0, 1, 2, 4, 5, 6], (3, 2)),  # racks are alike, hosts are not
        ((), range(8), ()),
        ((4, 2), [8], ()),  # of another run
    ],
)
def test_a_group_has_the_levels_of_its_ranks(levels: Any, ranks: Any, expected: Any) -> None:
    assert topology.among(levels, ranks) == expected


@given(factors, st.data())
def test_a_group_s_levels_are_as_many_ranks_as_it_has(
    levels: list[int], data: st.DataObject
) -> None:
    ranks = data.draw(st.lists(st.integers(0, prod(levels) - 1), min_size=1, unique=True))
    group_levels = topology.among(levels, ranks)
    assert prod(group_levels) == len(ranks)
    if len(group_levels) == len(levels):  # then what is between hosts is between its hosts
        for a, world_a in enumerate(ranks):
            for b, world_b in enumerate(ranks):
                assert topology.level(group_levels, a, b) == topology.level(
                    levels, world_a, world_b
                )


def test_hosts_by_name() -> None:
    assert topology.of_hosts("aaaabbbb") == (4, 2)
    assert topology.of_hosts("aabbcc") == (2, 3)
    for unlike in ("", "aaaa", "abcd", "aaab", "abab", "aabba"):
        assert topology.of_hosts(unlike) == ()


def test_ranks_dealt_to_hosts_in_turn_are_noticed() -> None:
    assert topology.of_hosts_in_turn("abababab") == (4, 2)
    assert topology.of_hosts_in_turn("cabcab") == (2, 3)
    for other in ("aaaabbbb", "abcd", "aaaa", "a", "ababa", "abba", "abaabb"):
        assert topology.of_hosts_in_turn(other) == ()


def test_the_same_hosts_of_other_numbers_of_ranks() -> None:
    assert [topology.resize((4, 2), n) for n in (1, 2, 4, 8, 12)] == [
        (1, 1),
        (2, 1),
        (4, 1),
        (4, 2),
        (4, 3),
    ]
    assert topology.resize((4, 2), 6) == ()
    assert topology.words((4, 2)) == "2 hosts of 4 ranks"
    assert topology.words((2, 2, 2)) == "2 racks of 2 hosts of 2 ranks"
    assert (topology.words((1, 1)), topology.words((8,))) == (
        "1 host of 1 rank",
        "1 host of 8 ranks",
    )


# ---- in a spec


def test_links_between_hosts_are_those_and_a_link_s_own_line_wins() -> None:
    link_lines = {(0, 4): wb.Link(latency="7 ms"), (0, 1): wb.Link(bandwidth="1 Mbit/s")}
    network = TWO_HOSTS.model_copy(update={"latency": "1 us", "links": link_lines})
    for a in range(8):
        for b in range(8):
            link, far = network.link(a, b), a // 4 != b // 4
            rate = "1 Mbit/s" if (a, b) == (0, 1) else "1 Gbit/s" if far else "unlimited"
            assert link.bandwidth == rate
            assert link.latency == ("7 ms" if (a, b) == (0, 4) else "1 ms" if far else "1 us")
    racks = wb.Network(levels=(2, 2, 2), between=(FAR, wb.Link(latency="9 ms", down=True)))
    assert [racks.link(0, b).latency for b in (1, 2, 4)] == ["0 ms", "1 ms", "9 ms"]
    assert [racks.link(0, b).down for b in (1, 2, 4)] == [False, False, True]
    one_for_all = wb.Network(levels=(2, 2, 2), between=FAR)
    assert one_for_all.link(0, 4) == one_for_all.link(0, 2) != one_for_all.link(0, 1)


def test_what_goes_by_links_knows_them_all() -> None:
    network = TWO_HOSTS.model_copy(update={"links": {(1, 0): wb.Link(latency="3 ms")}})
    links = links_of(network, 8)
    for a in range(8):
        for b in range(8):
            link = network.link(a, b)
            assert links.of(a, b) == (link.latency_ns / 1e9, 1 / link.bytes_per_second)
    assert len(links.pairs) == 33 and links.levels == (4, 2)
    some = links.among([4, 5, 0, 1])
    assert some.levels == (2, 2) and some.of(0, 2) == links.of(4, 0) and some.of(3, 2) == (3e-3, 0)
    again = Costs.from_json(Costs({4: load().machine(4)}, links=links).to_json())
    assert again.links == links


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: wb.Network(levels=4), "4.* is two hosts of four"),
        (lambda: wb.Network(levels="4x2"), r"write ranks of a host, then hosts"),
        (lambda: wb.Network(levels=(4, 0)), "greater than or equal to 1"),
        (lambda: wb.Network(levels=(4, 2.5)), "must be a whole number"),
        (lambda: wb.Network(between=FAR), r"which ranks share a host, such as.*levels=\(4, 2\)"),
        (
            lambda: wb.Network(levels=(8,), between=FAR),
            "1 host of 8 .* nothing between hosts",
        ),
        (
            lambda: wb.Network(levels=(2, 2, 2, 2), between=(FAR, FAR)),
            "has 2 links.*need 3: one for",
        ),
        (lambda: wb.Network(levels=(4, 2), between={"latency": "5"}), "duration '5' has no unit"),
        (lambda: wb.Network(levels=(4, 2), between="1 ms"), "write a Link"),
        (
            lambda: wb.Experiment(ranks=6, network=TWO_HOSTS),
            r"network.levels = \(4, 2\): 2 hosts of 4 ranks are 8 ranks, and ranks=6. .*\(3, 2\)",
        ),
        (
            lambda: wb.Experiment(ranks=12, network=TWO_HOSTS),
            r"are 8 ranks, and ranks=12. Such as levels=\(4, 3\)",
        ),
        (lambda: wb.why(ranks=4, network=TWO_HOSTS), r"levels = \(4, 2\).*ranks=4"),
        (lambda: wb.crossover(ranks=4, network=TWO_HOSTS, measure=False), "ranks=4"),
        (lambda: wb.plan("all_reduce", "ring", ranks=4, network=TWO_HOSTS), "ranks=4"),
    ],
)
def test_what_cannot_be_is_refused_in_words(make: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        make()


def test_hosts_as_yaml_and_as_code() -> None:
    exp = wb.Experiment(ranks=8, network=TWO_HOSTS)
    assert exp.to_yaml().endswith(
        textwrap.dedent("""\
        network:
          levels:
          - 4
          - 2
          between:
            latency: 1 ms
            bandwidth: 1 Gbit/s
    """)
    )
    assert 'levels=(4, 2), between=wb.Link(latency="1 ms", bandwidth="1 Gbit/s")' in form.as_code(
        exp
    )
    yaml = "ranks: 8\nnetwork: {levels: [2, 2, 2], between: [{latency: 1 ms}, {latency: 2 ms}]}\n"
    racks = wb.Experiment.from_yaml(yaml)
    assert racks.network.link(0, 7).latency == "2 ms"


# ---- what is said of them


def test_notes_say_which_links_are_emulated() -> None:
    def notes(network: wb.Network) -> list[str]:
        ranks = prod(network.levels) or 4
        exp = wb.Experiment(ranks=ranks, network=network)
        header = facts({"experiment": exp.to_yaml()})
        assert header["levels"] == list(network.levels)
        control = Control.create(ranks)
        for a in range(ranks):
            for b in range(ranks):
                link = network.link(a, b)
                control.set_link(
                    a,
                    b,
                    latency_ns=link.latency_ns if a != b else 0,
                    down=link.down,
                    bytes_per_second=link.bytes_per_second if a != b else float("inf"),
                )
        links, levels = emulated(control.state(), ranks, network.levels)
        live = links, link_notes(levels)
        assert levels == header["link_levels"]
        assert live == ([], [one for one in header["notes"] if one.startswith(("all ", "links "))])
        control.segment.close()
        return list(header["notes"])

    far = "links between hosts emulated: 1 ms, 1 Gbit/s"
    assert notes(TWO_HOSTS) == ["2 hosts of 4 ranks", far]
    inside = TWO_HOSTS.model_copy(update={"latency": "5 us"})
    assert notes(inside) == ["2 hosts of 4 ranks", "links inside hosts emulated: 5 µs", far]
    assert notes(wb.Network(latency="5 us", levels=(2, 2))) == [
        "2 hosts of 2 ranks",
        "all links emulated: 5 µs",
    ]
    racks = wb.Network(levels=(2, 2, 2), between=(FAR, wb.Link(latency="9 ms")))
    assert notes(racks)[1:] == [far, "links between racks emulated: 9 ms"]
    cut = wb.Network(levels=(2, 2), between=wb.Link(down=True))
    assert notes(cut)[1:] == ["links between hosts cut"]


def test_a_study_of_fewer_ranks_has_fewer_hosts() -> None:
    exp = wb.Experiment(ranks=8, network=TWO_HOSTS, all_reduce="hierarchical")
    networks = {
        case.ranks: case.experiment.network for case in cases(exp, (1, 2, 4, 8), "strong", {})
    }
    assert {n: network.levels for n, network in networks.items()} == {
        1: (1, 1),
        2: (2, 1),
        4: (4, 1),
        8: (4, 2),
    }
    assert networks[8] == exp.network and networks[4].link(0, 3).latency == "0 ms"
    with pytest.raises(SpecError, match=r"2 hosts of 4 ranks .*cannot be had with 6"):
        cases(exp, (6,), "strong", {})


# ---- theory, and "auto"


@pytest.mark.parametrize(
    ("levels", "between"), [((4, 2), 0.25), ((2, 4), 0.75), ((2, 2, 2), 0.75), ((3, 2), 1 / 3)]
)
def test_a_plan_over_hosts_goes_by_their_levels_and_links(
    levels: tuple[int, ...], between: float
) -> None:
    n, nbytes = prod(levels), 4 * 24_000
    network = wb.Network(bandwidth="1 GB/s", levels=levels, between=wb.Link(bandwidth="10 MB/s"))
    planned = wb.plan(
        "all_reduce",
        "hierarchical",
        ranks=n,
        nbytes=nbytes,
        latency="1 ms",
        bandwidth="unlimited",
        network=network,
    )
    assert planned.steps == cost_model.steps(cost_model.hierarchical(levels), n)
    sends = planned.events.filter(pl.col("kind") == "send")
    far = sends.filter(pl.col("rank") // levels[0] != pl.col("peer") // levels[0])
    assert far.group_by("rank").agg(pl.col("nbytes").sum())["nbytes"].to_list() == (
        [round(between * nbytes)] * n
    )
    rates, left, seconds = [1e-9] + [1e-7] * (len(levels) - 1), nbytes, 0.0
    for p, rate in zip(levels, rates, strict=True):
        seconds += 2 * (p - 1) * (1e-3 + left / p * rate)
        left //= p
    assert planned.seconds == pytest.approx(seconds, rel=1e-6)
    assert laws.steps_and_bytes(planned.events) == []
    rooted = wb.plan(
        "broadcast",
        "flat",
        ranks=n,
        nbytes=nbytes,
        root=1,
        latency="1 ms",
        bandwidth="unlimited",
        network=network,
    )
    longest = rooted.events.filter(pl.col("kind") == "send").select(
        "rank", "peer", lasts=pl.col("end_ns") - pl.col("start_ns")
    )
    assert set(longest["rank"]) == {1}
    for row in longest.rows(named=True):
        rate = 1e-9 if row["peer"] // levels[0] == 0 else 1e-7
        assert row["lasts"] == pytest.approx(1e6 + 1e9 * nbytes * rate, rel=1e-6)


def test_auto_takes_rings_within_hosts_where_the_way_between_them_is_narrow() -> None:
    far = wb.Link(latency="100 us", bandwidth="100 Mbit/s")
    for levels in ((4, 2), (2, 3), (3, 2), (2, 2, 2)):
        network = wb.Network(levels=levels, between=far)
        choice = wb.why("all_reduce", "8 MiB", prod(levels), network)
        assert choice.chosen == "hierarchical", (levels, choice)
        assert choice.seconds["hierarchical"] < 0.75 * choice.seconds["ring"]
    # What is predicted of other levels is of those, not of the most even.
    two, four = (
        wb.why("all_reduce", "8 MiB", 8, wb.Network(levels=levels, between=far)).seconds
        for levels in ((4, 2), (2, 4))
    )
    assert four["hierarchical"] > 2 * two["hierarchical"]


def test_levels_are_of_the_ranks_that_they_are_told_of() -> None:
    """A group within one host has links of its own, and no others."""
    links = links_of(TWO_HOSTS, 8).among([0, 1, 2, 3])
    assert links == Links(levels=(4, 1)) and not links.paced


# ---- a run


@pytest.fixture(scope="module")
def run() -> wb.Run:
    network = wb.Network(levels=(2, 3), between=wb.Link(latency="200 us"))
    exp = wb.Experiment(
        strategy="fusion",
        ranks=6,
        iterations=3,
        batch_size=12,
        all_reduce="hierarchical",
        network=network,
        threads=1,
    )
    training_run = wb.run(exp)
    assert training_run.wait(timeout=60).ok
    return training_run


def test_a_run_goes_by_its_hosts_and_every_law_holds(run: wb.Run) -> None:
    assert laws.check_events(run.events) == []
    text = pl.col("collective", "group", "kind", "phase").cast(pl.String)
    rows = run.events.with_columns(text).filter(
        pl.col("collective") == "all_reduce", pl.col("group") == "default", pl.col("op") >= 0
    )
    outer = rows.filter(pl.col("kind") == "collective")
    assert set(outer["phase"]) == {"levels 2,3"}
    whole = outer.group_by("op").agg(pl.col("nbytes").first())["nbytes"].sum() // 4
    sends = rows.filter(pl.col("kind") == "send", pl.col("rank") // 2 != pl.col("peer") // 2)
    sent = sends.group_by("rank").agg(pl.col("nbytes").sum()).sort("rank")["nbytes"].to_list()
    each = outer.filter(pl.col("rank") == 0)["nbytes"].to_list()
    expected = [
        sum(4 * cost_model.level_elements([2, 3], nbytes // 4)[1][rank] for nbytes in each)
        for rank in range(6)
    ]
    assert sent == expected and sum(sent) == pytest.approx(6 * 4 * whole * 2 / 3, rel=0.01)
    assert to_other_hosts(run.store, (2, 3)) == max(sent)


def test_other_levels_break_the_law(run: wb.Run) -> None:
    """What a record says of its levels is what it is judged by."""
    text = pl.col("phase").cast(pl.String)
    other = run.events.with_columns(text.replace("levels 2,3", "levels 6").alias("phase"))
    violations = laws.steps_and_bytes(other)
    assert violations and "hierarchical levels 6, 6 ranks" in str(violations[0])
    assert "6 steps in all, theory 10" in str(violations[0])
    nonsense = run.events.with_columns(text.replace("levels 2,3", "levels 7,7").alias("phase"))
    assert laws.steps_and_bytes(nonsense) != []  # judged as the most even: not these


def test_a_comparison_says_what_went_to_other_hosts(run: wb.Run) -> None:
    numbers = of(run, Curves(run.store))
    assert numbers["bytes_between"] == to_other_hosts(run.store, (2, 3))
    assert "sent to other hosts by the busiest rank" in beside({"run": [numbers]})[""].to_list()

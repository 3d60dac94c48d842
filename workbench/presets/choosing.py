"""All-reduce algorithms on emulated links: experiments to begin with, and to compare.

``presets`` are (name, words, make), ``comparisons`` (name, words, make name -> experiment);
workbench.presets.catalogue shows both beside the others. The gradient travels as one tensor, so
that an iteration has one all-reduce, and links are slow enough that the algorithm is what counts.
"""

from __future__ import annotations

from collections.abc import Callable

from workbench.experiment.spec import Experiment, Link, Network

Words = tuple[str, str, Callable[[], Experiment]]
Question = tuple[str, str, Callable[[], dict[str, Experiment]]]
GROUP, ORDER = "Collectives", 30
MEASURES = {  # that decide a comparison; others: time per step
    "What crosses from host to host?": ("bytes_between",),
}

NARROW = Network(latency="1 ms", bandwidth="100 Mbit/s")  # the gradient's bytes are what counts
LONG = Network(latency="20 ms")  # the steps are


def in_hosts(*levels: int) -> Network:
    """Narrow links between hosts, wide ones inside."""
    far = Link(latency="1 ms", bandwidth="100 Mbit/s")
    return Network(bandwidth="2 Gbit/s", levels=levels, between=far)


def presets() -> list[Words]:
    """Return presets of eight ranks, 247 kB and narrow links: equal losses, but different times."""
    return [
        (
            "All-reduce: ring",
            "Fourteen steps, and every link is busy in all of them. Is a rank ever idle?",
            lambda: adding("ring"),
        ),
        (
            "All-reduce: naive",
            "Seven send to rank 0, which answers each. What do the other links do meanwhile?",
            lambda: adding("naive"),
        ),
        (
            "All-reduce: all to all",
            "Every rank sends everything to every other: seven steps, seven times the tensor each.",
            lambda: adding("all_to_all"),
        ),
        (
            "All-reduce: tree",
            "Up and down three levels: six steps. What does a leaf do in the meantime?",
            lambda: adding("tree"),
        ),
        (
            "All-reduce: butterfly",
            "Partners 1, 2 and 4 apart exchange whole tensors: three steps, all take part in each.",
            lambda: adding("butterfly"),
        ),
        (
            "All-reduce: Rabenseifner",
            "The butterfly's partners exchange halves, then quarters: the ring's bytes in 6 steps.",
            lambda: adding("rabenseifner"),
        ),
        (
            "All-reduce: hierarchical",
            "Rings of four inside two hosts, pairs between them: what crosses from host to host?",
            lambda: adding("hierarchical"),
        ),
        (
            "Two hosts: ring",
            "Four ranks in a host, a narrow way between the two: which links hold up all others?",
            lambda: adding("ring", in_hosts(4, 2)),
        ),
        (
            "Two hosts: hierarchical",
            "Rings inside the hosts first: how much is left for the narrow way?",
            lambda: adding("hierarchical", in_hosts(4, 2)),
        ),
        (
            "All-reduce: ring, long links",
            "Twenty milliseconds a step, however small the chunk: now fourteen steps are many.",
            lambda: adding("ring", LONG),
        ),
        (
            "All-reduce: butterfly, long links",
            "The same long links in three steps. Where did its many bytes go?",
            lambda: adding("butterfly", LONG),
        ),
    ]


def comparisons() -> list[Question]:
    return [
        (
            "Why does ring beat naive?",
            "Two, four and eight ranks on narrow links: which algorithm slows down?",
            _ring_or_naive,
        ),
        (
            "When does ring lose?",
            "Narrow links, then long ones: do the bytes count, or the steps?",
            _narrow_or_long,
        ),
        (
            "Seven ways to add",
            "Eight ranks on narrow links, one gradient, seven algorithms.",
            _ways,
        ),
        (
            "What crosses from host to host?",
            "Narrow links between hosts: rings over them, and rings within. Which sends least out?",
            _hosts,
        ),
    ]


def adding(all_reduce: str, network: Network = NARROW, ranks: int = 8) -> Experiment:
    return Experiment(
        strategy="fusion",
        ranks=ranks,
        iterations=20,
        batch_size=64,
        network=network,
        all_reduce=all_reduce,
    )


def _ring_or_naive() -> dict[str, Experiment]:
    return {
        f"{name}, {ranks} ranks": adding(name, ranks=ranks)
        for ranks in (2, 4, 8)
        for name in ("ring", "naive")
    }


def _narrow_or_long() -> dict[str, Experiment]:
    return {
        f"{name}, {links} links": adding(name, network)
        for links, network in (("narrow", NARROW), ("long", LONG))
        for name in ("ring", "butterfly", "one_shot")
    }


def _ways() -> dict[str, Experiment]:
    names = ("ring", "naive", "all_to_all", "tree", "butterfly", "rabenseifner", "hierarchical")
    return {name: adding(name) for name in names}


def _hosts() -> dict[str, Experiment]:
    two, four = in_hosts(4, 2), in_hosts(2, 4)
    return {
        "ring, 2 hosts of 4": adding("ring", two),
        "rabenseifner, 2 hosts of 4": adding("rabenseifner", two),
        "hierarchical, 2 hosts of 4": adding("hierarchical", two),
        "hierarchical, 4 hosts of 2": adding("hierarchical", four),
        "auto, 2 hosts of 4": adding("auto", two),
    }

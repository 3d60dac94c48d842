"""Experiments of every kind, drawn by Hypothesis."""

from __future__ import annotations

import textwrap
from typing import Any

from hypothesis import strategies as st

from workbench.experiment.spec import (
    Corrupt,
    Experiment,
    Freeze,
    Jitter,
    Kill,
    Link,
    Network,
    Pads,
    Slow,
)
from workbench.user_code.source import Source

OWN_TASK = textwrap.dedent("""
    import torch

    class MyTask:
        def __init__(self, width=8, *, depth=1):
            self.width = width
        def model(self):
            return torch.nn.Linear(self.width, 1)   # "quotes", ünicode, and a tab:\\t
""").lstrip()

PADS = Pads(forward="10 ms", input_gradient="20 ms", weight_gradient="5 us")


numbers = st.integers(1, 999)
few = st.integers(1, 64)  # a schedule of 999 microbatches is checked for 0.2 s
durations = st.builds("{} {}".format, numbers, st.sampled_from(["ns", "us", "ms", "s"]))
rates = st.builds("{} {}".format, numbers, st.sampled_from(["kbit/s", "Mbit/s", "MB/s"]))
bandwidths = rates | st.just("unlimited")
links = st.builds(
    Link, latency=st.none() | durations, bandwidth=st.none() | bandwidths, down=st.booleans()
)


def pairs(ranks: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(0, ranks - 1), st.integers(0, ranks - 1)).filter(
        lambda pair: pair[0] != pair[1]
    )


@st.composite
def hosts(draw: st.DrawFn, ranks: int) -> dict[str, Any]:
    """``levels`` and ``between`` of a Network of so many ranks, or nothing of hosts."""
    levels, rest = list[int](), ranks
    while draw(st.booleans()):
        levels.append(draw(st.sampled_from([p for p in range(1, rest + 1) if rest % p == 0])))
        rest //= levels[-1]
    levels += [rest] if levels else []
    above = len(levels) - 1
    if above < 1:
        return {"levels": levels}
    each = st.lists(links, min_size=above, max_size=above)
    return {"levels": levels, "between": draw(st.none() | links | each)}


@st.composite
def experiments(draw: st.DrawFn) -> Experiment:
    ranks, iterations = draw(st.integers(2, 8)), draw(st.integers(1, 1000))
    rank, at, factor = st.integers(0, ranks - 1), st.integers(0, iterations - 1), st.floats(1, 1e6)
    faults = draw(
        st.lists(
            st.builds(Kill, rank=rank, at_iteration=at)
            | st.builds(Freeze, rank=rank, at_iteration=at, seconds=st.floats(1e-9, 1e6))
            | st.builds(
                Corrupt,
                rank=rank,
                at_iteration=at,
                kind=st.sampled_from(["nan", "raises", "shape", "bitflip"]),
            )
            | st.builds(Slow, rank=rank, factor=factor)
            | st.builds(Jitter, probability=st.floats(0, 1), factor=factor),
            max_size=3,
            unique_by=lambda fault: (fault.fault, getattr(fault, "rank", 0)),
        )
    )
    code = st.builds(
        Source,
        name=st.just("own"),
        code=st.just(OWN_TASK) | st.text(st.characters(exclude_categories=["Cs"])),
    )
    cap = st.fixed_dictionaries({"bucket_cap_mb": st.floats(0.1, 100)})
    strategy, options = draw(
        st.tuples(st.just("data_parallel"), st.just({}))
        | st.tuples(st.just("ddp"), cap | st.just({}))
        | st.tuples(st.just("pipeline"), st.fixed_dictionaries({"microbatches": few}))
        | st.tuples(code, st.just({}))
    )
    optimizer = draw(st.sampled_from(["sgd", "adam"]))
    pads = st.builds(Pads, forward=durations, input_gradient=durations, weight_gradient=durations)
    backend = draw(st.sampled_from(["workbench", *(["gloo"] if strategy != "pipeline" else [])]))
    ours = {
        "all_reduce": draw(st.sampled_from(["ring", "naive", "one_shot", "auto"]) | code),
        "chunk_bytes": 64 * draw(st.integers(1, 2**20)),
        "network": Network(
            latency=draw(durations),
            bandwidth=draw(bandwidths),
            links=draw(st.dictionaries(pairs(ranks), links, max_size=4)),
            **draw(hosts(ranks)),
        ),
    }
    return Experiment(
        strategy=strategy,
        options=options,
        backend=backend,
        **(ours if backend == "workbench" else {}),
        task=draw(st.just("lenet_digits") | code),
        ranks=ranks,
        iterations=iterations,
        batch_size=draw(numbers),
        seed=draw(st.integers(0, 2**63 - 1)),
        optimizer=optimizer,
        lr=draw(st.none() | st.floats(0, 1e6, exclude_min=True)),
        momentum=draw(st.floats(0, 0.999)) if optimizer == "sgd" else 0.0,
        warmup=draw(st.integers(0, 1000)),
        reference_batch=draw(st.none() | numbers),
        dtype=draw(st.sampled_from(["float32", "float64"])),
        device=draw(st.sampled_from(["auto", "cpu", "cuda", "cuda:1"])),
        threads=draw(st.none() | numbers),
        memory_limit=draw(st.none() | st.builds("{} MB".format, numbers)),
        pad_compute=draw(
            st.none() | durations | (pads if strategy == "pipeline" else st.nothing())
        ),
        faults=faults,
        timeout=draw(durations),
        stop_after=draw(st.none() | durations),
        record=draw(st.booleans()),
    )

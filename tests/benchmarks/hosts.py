"""Two hosts of two ranks with a cable of 100 Mbit/s between: hierarchical against flat ring, 25 MB.

The hosts are network namespaces with interfaces of their own, which `tc` paces (token bucket; a
delay of 2 ms too, where this kernel has netem); ranks of different hosts share no memory, so that
Gloo carries their chunks. Expected: each host's cable carries 1.5 tensors in a flat ring whose
neighbours are mostly on one host, and one tensor in the hierarchical way: 1.5 times as fast, and
no way is faster than that. Of a frame's 1514 bytes 1448 are a tensor's.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import polars as pl

import workbench as wb
from tests.benchmarks.figures import Figure
from workbench.launchers.processes.started_command import AGENT, Command, CommandLauncher

HOSTS, RANKS, MBIT, DELAY = 2, 4, 100, 0.002
PAYLOAD = 1448 / 1514  # of the bytes on a cable, and 1e6 / 8 of them a second make a Mbit/s
BRIDGE, NET = "wbbr", "10.177.0"
WIDTH, LAYERS = 2500, 2  # of the model: a layer of 25 MB
FASTER, WITHIN = 1.5, 0.15  # times; of theory


class Launcher(CommandLauncher):
    """Agents in the namespaces, as many in each."""

    host = f"{NET}.254"

    def command(self, count: int) -> list[str]:
        return [sys.executable, *AGENT]

    def start(self, count: int, environment: dict[str, str]) -> None:
        for rank in range(count):
            place = rank * HOSTS // count
            own = {
                "RANK": str(rank),
                "WORKBENCH_HOST": f"host {place}",
                "GLOO_SOCKET_IFNAME": _cable(place),
            }
            words = ["ip", "netns", "exec", _name(place), *self.command(count)]
            self._commands.append(Command(words, {**environment, **own}))


def _name(place: int) -> str:
    return f"wb-host-{place}"


def _cable(place: int) -> str:
    return f"wbc{place}"


def _run(*words: str, check: bool = True) -> bool:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert not (check and done.returncode), (words, done.stderr)
    return not done.returncode


@contextmanager
def namespaces(mbit: int = MBIT) -> Iterator[bool]:
    """Lay the cables. Yields whether they have a delay."""
    delayed = True
    try:
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
        _run("ip", "address", "add", f"{NET}.254/24", "dev", BRIDGE)
        _run("ip", "link", "set", BRIDGE, "up")
        for place in range(HOSTS):
            inside, outside = _cable(place), f"wbo{place}"
            _run("ip", "netns", "add", _name(place))
            _run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside)
            _run("ip", "link", "set", inside, "netns", _name(place))
            _run("ip", "link", "set", outside, "master", BRIDGE, "up")
            there = ("ip", "netns", "exec", _name(place))
            _run(*there, "ip", "address", "add", f"{NET}.{place + 1}/24", "dev", inside)
            for one in (inside, "lo"):
                _run(*there, "ip", "link", "set", one, "up")
            paced = (*there, "tc", "qdisc", "add", "dev", inside, "root")
            delay = ("delay", f"{DELAY * 1e3:g}ms")
            netem = ("netem", *delay, "rate", f"{mbit}mbit", "limit", "10000")
            if not _run(*paced, *netem, check=False):
                delayed = False
                _run(*paced, "tbf", "rate", f"{mbit}mbit", "burst", "64kb", "latency", "1s")
        yield delayed
    finally:
        for place in range(HOSTS):  # a namespace that is deleted takes its cable along later
            _run("ip", "link", "delete", f"wbo{place}", check=False)
            _run("ip", "netns", "delete", _name(place), check=False)
        _run("ip", "link", "delete", BRIDGE, check=False)


def seconds_of(
    algorithm: str, width: int = WIDTH, iterations: int = 4, chunk_bytes: int = 1 << 20
) -> tuple[list[float], int]:
    """Return the times of the large all-reduces of a run, and their bytes."""
    exp = wb.Experiment(
        task="mlp_layers",
        task_options={"layers": LAYERS, "width": width},
        ranks=RANKS,
        iterations=iterations,
        batch_size=8,
        threads=1,
        all_reduce=algorithm,
        chunk_bytes=chunk_bytes,
        timeout="120 s",
        launcher=f"{__file__}:Launcher",
    )
    run = wb.run(exp)
    run.wait(300, progress=False)
    calls = run.events.filter(kind="collective", collective="all_reduce")
    largest = int(calls["nbytes"].max() or 0)  # type: ignore[arg-type]
    calls = calls.filter(pl.col("nbytes") == largest, pl.col("iteration") > 0)
    spans = calls.group_by("op").agg(pl.col("end_ns").max() - pl.col("start_ns").min())
    return (spans["end_ns"] / 1e9).to_list(), largest


def by_theory(nbytes: int, mbit: int = MBIT, delay: float = 0.0) -> dict[str, float]:
    """Return the seconds that the cables take, by algorithm."""
    rate = mbit * 1e6 / 8 * PAYLOAD
    return {
        "ring": 2 * (RANKS - 1) * (nbytes / RANKS / rate + delay),
        "hierarchical": 2 * (HOSTS - 1) * (nbytes / HOSTS / rate + delay),
    }


def measure() -> list[Figure]:
    if os.geteuid() or not shutil.which("tc"):
        return []
    with namespaces() as delayed:
        by_algorithm = {name: seconds_of(name) for name in ("ring", "hierarchical")}
    nbytes = by_algorithm["ring"][1]
    ring, hierarchical = (statistics.median(spans) for spans, _ in by_algorithm.values())
    expected = by_theory(nbytes, delay=DELAY if delayed else 0.0)
    link = f"{MBIT} Mbit/s{', 2 ms' if delayed else ', no delay: this kernel has no netem'}"
    detail = f"{ring:.2f} and {hierarchical:.2f} s; {nbytes / 1e6:.1f} MB; {link}"
    figures = [Figure("flat ring / hierarchical", ring / hierarchical, FASTER, "×", True, detail)]
    for name, seconds in (("ring", ring), ("hierarchical", hierarchical)):
        apart = abs(seconds / expected[name] - 1)
        what = f"{name}: from theory"
        detail = f"measured {seconds:.3f} s, by theory {expected[name]:.3f} s"
        figures.append(Figure(what, apart * 100, WITHIN * 100, "%", False, detail))
    return figures

"""Two hosts of two ranks, a cable of 100 Mbit/s and 2 ms: hierarchical beside flat ring, 25 MB.

The hosts are network namespaces with devices of their own; what they send goes through a program
that paces and delays it (cable.c). Ranks of different hosts share no memory, so that Gloo carries
their chunks. Of a frame's 1514 bytes 1448 are a tensor's, and every second frame that comes is
acknowledged by one of 66 bytes.

By theory a host's cable carries in a flat ring 1.5 tensors where ranks are placed in blocks, and 3
where they are dealt out in turn, as by Slurm's ``--distribution=cyclic`` and by ``mpiexec --map-by
node``; in the hierarchical way it is one tensor, however they are placed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import polars as pl

import workbench as wb
from tests.live import ROOT
from tools.benchmarks.figures import Figure
from workbench.launchers.processes.started_command import Command, CommandLauncher

HOSTS, RANKS, MBIT, DELAY = 2, 4, 100, 0.002
PAYLOAD = 1448 / (1514 + 66 / 2)  # of the bytes on a cable that is as busy both ways
BRIDGE, NET = "wbbr", "10.177.0"
NAMESPACES = Path("/run/netns")
ONE_AT_A_TIME = Path(tempfile.gettempdir(), f"workbench-hosts-{os.getuid()}.lock")
WIDTH, LAYERS = 2500, 2  # of the model: a layer of 25 MB
FASTER = {"in blocks": 1.4, "in turn": 1.7}  # times; theory: 1.5 and 3
WITHIN = 0.15  # of theory


class Launcher(CommandLauncher):
    """Agents in the namespaces, as many in each, by one command per host: ranks in blocks."""

    host = f"{NET}.254"
    hosts = HOSTS

    def place(self, rank: int, count: int) -> int:
        """Return the host of a rank."""
        return rank * self.hosts // count

    def command(self, count: int) -> list[str]:
        return [sys.executable, "-m", "tools.benchmarks.host_agents"]

    def start(self, count: int, environment: dict[str, str]) -> None:
        for host in range(self.hosts):
            ranks = [str(rank) for rank in range(count) if self.place(rank, count) == host]
            own = {"PYTHONPATH": str(ROOT), **variables(host)}
            words = ["ip", "netns", "exec", _name(host), *self.command(count), ",".join(ranks)]
            self._commands.append(Command(words, {**environment, **own}))


class InTurn(Launcher):
    """Ranks are dealt to the hosts in turn."""

    def place(self, rank: int, count: int) -> int:
        return rank % self.hosts


class OnFour(Launcher):
    """Four hosts."""

    hosts = 4


LAUNCHERS = {"in blocks": Launcher, "in turn": InTurn}


def variables(place: int) -> dict[str, str]:
    """Return what processes of that host need to know of it."""
    return {"WORKBENCH_HOST": f"host {place}", "GLOO_SOCKET_IFNAME": _cable(place)}


def _name(place: int | str) -> str:
    return f"wb-host-{place}"


def _cable(place: int) -> str:
    return f"wbc{place}"


def _run(*words: str, check: bool = True) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert not (check and done.returncode), (words, done.stderr)


def missing() -> str:
    """Return why there can be no such hosts here; "" where there can."""
    if os.geteuid():
        return "not root, which network namespaces need"
    programs = [one for one in ("ip", "cc") if not shutil.which(one)]
    if programs:
        return f"no {', '.join(programs)}"
    if not Path("/dev/net/tun").exists():
        return "no /dev/net/tun"
    done = subprocess.run(["ip", "netns", "exec", "", "true"], capture_output=True, check=False)
    return "no network namespaces" if b"not supported" in done.stderr else ""


@contextmanager
def namespaces(hosts: int = HOSTS, mbit: float = MBIT, delay: float = DELAY) -> Iterator[None]:
    """Make the hosts and lay their cables: ``ip link set wbo1 down`` cuts that of host 1.

    One process at a time: another waits until these hosts are gone. What a process has left that
    was killed is removed first.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        ExitStack() as cables,
        ONE_AT_A_TIME.open("w") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        _remove()
        program = f"{folder}/cable"
        _run("cc", "-O2", "-o", program, str(Path(__file__).with_name("cable.c")))
        try:
            _run("ip", "link", "add", BRIDGE, "type", "bridge")
            _run("ip", "address", "add", f"{NET}.254/24", "dev", BRIDGE)
            _run("ip", "link", "set", BRIDGE, "up")
            for place in range(hosts):
                inside, outside = _cable(place), f"wbo{place}"
                _run("ip", "netns", "add", _name(place))
                words = [program, f"{NAMESPACES}/{_name(place)}", inside, outside]
                words += [f"{mbit:g}", f"{delay * 1e6:.0f}"]
                pipe = subprocess.PIPE
                cable = cables.enter_context(subprocess.Popen(words, stdin=pipe, stdout=pipe))
                assert cable.stdout is not None and cable.stdout.readline() == b"ready\n", words
                _run("ip", "link", "set", outside, "master", BRIDGE, "up")
                there = ("ip", "netns", "exec", _name(place))
                _run(*there, "ip", "address", "add", f"{NET}.{place + 1}/24", "dev", inside)
                for one in (inside, "lo"):
                    _run(*there, "ip", "link", "set", one, "up")
            yield
        finally:
            cables.close()  # their input with them, and the devices with the programs
            _remove()


def _remove() -> None:
    """Remove all hosts that there are, and their bridge."""
    for host in NAMESPACES.glob(_name("*")):
        _run("ip", "netns", "delete", host.name)
    if BRIDGE in os.listdir("/sys/class/net"):
        _run("ip", "link", "delete", BRIDGE)


def seconds_of(
    algorithm: str,
    placement: str = "in blocks",
    width: int = WIDTH,
    iterations: int = 3,
    chunk_bytes: int = 1 << 18,
) -> tuple[list[float], int]:
    """Return the times of the large all-reduces of a run, and their bytes: of the half that
    ranks begin together best, since a gradient that is computed late is not the cables' doing.
    """
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
        launcher=f"{__file__}:{LAUNCHERS[placement].__name__}",
    )
    run = wb.run(exp)
    run.wait(300, progress=False)
    calls = run.events.filter(kind="collective", collective="all_reduce")
    largest = int(calls["nbytes"].max() or 0)  # type: ignore[arg-type]
    calls = calls.filter(pl.col("nbytes") == largest, pl.col("iteration") > 0)
    begin, end = pl.col("start_ns"), pl.col("end_ns")
    spans = calls.group_by("op").agg(end.max() - begin.min(), apart=begin.max() - begin.min())
    together = spans.sort("apart").head((len(spans) + 1) // 2)
    return (together["end_ns"] / 1e9).to_list(), largest


def by_theory(
    algorithm: str, placement: str, nbytes: int, mbit: float = MBIT, delay: float = DELAY
) -> float:
    """Return the seconds that the cables take."""
    rate = mbit * 1e6 / 8 * PAYLOAD
    if algorithm == "hierarchical":
        return 2 * (HOSTS - 1) * (nbytes / HOSTS / rate + delay)
    steps, each = 2 * (RANKS - 1), nbytes / RANKS / rate
    if placement == "in turn":  # all ranks of a host send to another one
        return steps * (RANKS // HOSTS * each + delay)
    return steps * (each + delay * HOSTS / RANKS)  # of a chunk's hops, the share between hosts


def of_placement(placement: str) -> list[Figure]:
    """Return the figures of ranks that are placed so, over cables that are there."""
    figures, medians, theory = list[Figure](), {}, {}
    for name in ("ring", "hierarchical"):
        spans, nbytes = seconds_of(name, placement)
        medians[name] = statistics.median(spans)
        theory[name] = by_theory(name, placement, nbytes)
        apart = abs(medians[name] / theory[name] - 1) * 100
        detail = f"measured {medians[name]:.3f} s, by theory {theory[name]:.3f} s"
        what = f"{name}, ranks {placement}: from theory"
        figures.append(Figure(what, apart, WITHIN * 100, "%", False, detail))
    ratio, most = (one["ring"] / one["hierarchical"] for one in (medians, theory))
    detail = f"by theory {most:.2f}; {nbytes / 1e6:.1f} MB, {MBIT} Mbit/s, {DELAY * 1e3:g} ms"
    what = f"ranks {placement}: ring / hierarchical"
    return [*figures, Figure(what, ratio, FASTER[placement], "×", True, detail)]


def measure() -> list[Figure]:
    if why := missing():
        print(f"not measured: {why}")
        return []
    with namespaces():
        return [figure for placement in FASTER for figure in of_placement(placement)]

"""The preparation of ranks: their links, their orders, and the choice of an algorithm."""

from __future__ import annotations

import json
import os
import secrets
import weakref
from collections.abc import Mapping
from functools import partial
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Any

from workbench.choosing.costs import Costs, links_of, load
from workbench.common.threads import start as start_thread
from workbench.experiment.checks import prepare
from workbench.experiment.network import Link
from workbench.experiment.spec import Experiment, Slow
from workbench.experiment.traits import known_traits
from workbench.experiment.yaml_text import as_fields, parse
from workbench.launchers.processes.launcher import Launcher, MeetingPlace, launcher_of
from workbench.shared_memory.control_block import SLOW, Control
from workbench.shared_memory.link_state import PLAIN, LinkState, ps_per_byte
from workbench.shared_memory.network_cards import set_up_cards

if TYPE_CHECKING:
    from workbench.store.event_store import Store


def set_up_links(exp: Experiment, control: Control) -> None:
    """Write the emulated links, and the ranks that are slow from the start.

    A rank's links to all ranks of its group of hosts are written as one, then those to its own host
    in their place: a word for each pair of 1,024 ranks would take seconds.
    """
    network, p = exp.network, exp.ranks
    widths = list(accumulate(network.levels, mul, initial=1))
    blocks = [min(p, width) for width in widths[1:]] or [p]
    usual = [_state_of(network.at(level)) for level in range(len(blocks))]
    for a in range(p) if set(usual) != {PLAIN} else ():
        for block, link in zip(blocks[::-1], usual[::-1], strict=True):
            start = a - a % block
            control.fill_links(a, range(start, min(start + block, p)), link)
        control.fill_links(a, range(a, a + 1), PLAIN)  # what it sends to itself does not travel
    for a, b in network.links:
        if a < p and b < p:
            control.fill_links(a, range(b, b + 1), _state_of(network.link(a, b)))
    control.refresh()
    cards, switch = network.nic_bytes_per_second, network.switch_bytes_per_second
    set_up_cards(control, cards, network.ranks_per_nic, switch)
    for fault in exp.faults:
        if isinstance(fault, Slow) and not fault.has_moment:
            control.set_rank(fault.rank, SLOW, round(fault.factor * 1000))


def _state_of(link: Link) -> LinkState:
    return LinkState(link.latency_ns, ps_per_byte(link.bytes_per_second), bool(link.down))


def costs_of(exp: Experiment) -> Costs:
    """Return the machine's costs over the experiment's links."""
    return load().over(links_of(exp.network, exp.ranks))


def threads_of(exp: Experiment) -> int:
    """Return the computing threads of each rank."""
    return exp.threads or max(1, (os.cpu_count() or 1) // exp.ranks)


def launcher_for(exp: Experiment) -> Launcher:
    """Return the launcher of an experiment, with the rows that its ranks train where these are
    Spark's.
    """
    launcher = launcher_of(exp.launcher, exp.launcher_options, threads_of(exp))
    rows = exp.options.get(known_traits(exp.strategy).rows)
    if rows and hasattr(launcher, "feed"):
        launcher.feed(rows)
    return launcher


def launched_by(exp: Experiment, launcher: str | None, options: str | None) -> Experiment:
    """Return the experiment under another launcher, with its options as YAML; None: as it is."""
    changes: dict[str, Any] = {}
    if launcher is not None:
        changes = {"launcher": launcher, "launcher_options": {}}
    if options is not None:
        changes["launcher_options"] = as_fields(
            parse(options), options, "a launcher's options", "bind_to: core"
        )
    return exp.replace(**changes) if changes else exp


def command_of(exp: Experiment) -> str:
    """Return what would start the experiment's ranks, once all of it has been checked."""
    prepare(exp)
    return launcher_for(exp).words(exp.ranks)


def launch_in_words(metadata: Mapping[str, str]) -> str:
    """Return how a run's ranks were started, and where they are bound to; "": by the driver."""
    launch = json.loads(metadata.get("launch", "{}"))
    if not launch:
        return ""
    ranks = [
        f"rank {rank} on {one['host']}, cores {','.join(map(str, one['cores']))}"
        for rank, one in launch["ranks"].items()
    ]
    threads = sorted({one["threads"] for one in launch["ranks"].values()})
    lines = [launch["command"], f"OMP_NUM_THREADS={','.join(threads)}; {'; '.join(ranks)}"]
    lines += [
        f"the clock of rank {rank} is {one['ahead_ns'] / 1e9:+,.6f} s ahead, within "
        f"{one['bound_ns'] / 1e3:,.0f} µs; it drifts by {one['drift_ppm']:+.1f} ppm"
        for rank, one in json.loads(metadata.get("clocks", "{}")).items()
    ]
    return "\n".join(lines)


def orders_of(
    exp: Experiment, meeting: MeetingPlace, prepared: Mapping[str, str], costs: Costs
) -> dict[str, Any]:
    """Return the orders that all ranks of a run get, now or later."""
    return {
        "spec": exp.to_json(),
        "host": meeting.host,
        "port": meeting.port,
        "threads": threads_of(exp),
        "prepared": dict(prepared),
        "costs": costs.to_json(),
        "folder": os.getcwd(),
        "run": secrets.token_hex(4),
    }


def note_choice(exp: Experiment, costs: Costs, store: Store) -> None:
    """Record, beside training, what "auto" takes for each size of message."""
    if exp.all_reduce == "auto" and exp.ranks > 1:
        from workbench.choosing.recorded import record_choice

        kept = weakref.ref(store)  # the run may be over and forgotten before this is done
        start_thread(partial(record_choice, exp, costs, kept), "run's choice")

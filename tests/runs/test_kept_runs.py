"""A finished run that is kept holds no descriptor and no shared memory, and tells the same."""

from __future__ import annotations

import gc
import os
from collections import Counter

import pytest

import workbench as wb
from tests.pairwise import first
from workbench.shared_memory.control_block import HELD, Control

TINY = wb.Experiment(
    task="mlp_layers", task_options={"layers": 2, "width": 16}, ranks=1, iterations=1, threads=1
)


def descriptors() -> Counter[str]:
    """Return the open descriptors of this process, by kind."""
    gc.collect()  # what tests before this one dropped
    kinds = Counter[str]()
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        kinds[os.readlink(path).split(":[")[0] if os.path.lexists(path) else "listdir"] += 1
    return kinds


@pytest.mark.parametrize(("launcher", "count"), first(1, [("local", 4), ("torchrun", 2)]))
def test_kept_runs_hold_no_descriptor(launcher: str, count: int) -> None:
    exp, kept = TINY.replace(launcher=launcher), []
    for _ in range(count):
        run = wb.run(exp)
        run.wait(timeout=60)
        kept.append(run)
        if len(kept) == 1:
            before = descriptors()
    assert descriptors() == before
    for run in kept:  # the last words are there
        assert run.iteration == 0 and run.loss and run.control_state.arrived == (0,)
        run.pause()
        assert run.control_state.held and run._control.words[HELD]
        run.stop()


def test_kept_teams_hold_no_descriptor() -> None:
    kept = []
    for _ in range(3):
        with wb.ranks(1) as team:
            assert team.execute("rank").values == {0: "0"}
        kept.append(team)
        if len(kept) == 1:
            before = descriptors()
    assert descriptors() == before
    assert [team.store.events.height for team in kept]


def test_words_that_are_no_longer_shared_stay() -> None:
    control, other = Control.create(40), Control.create(2)
    control.set_link(3, 38, latency_ns=5_000)
    control.set_loss(39, 0.5)
    control.hold()
    shared, state = bytes(control.segment.map), control.state()
    control.unshare()
    assert control.state() == state and bytes(control.segment.map) == shared
    assert control.loss(39) == 0.5 and control.segment.fd == -1
    control.let_go()
    assert not control.state().held and other.state().held is False

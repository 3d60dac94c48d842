"""A worker or a server that is frozen or killed stops others exactly as far as the policy says."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.live import LONG, crowding, gone, of, over_in_the_end, until
from tests.pairwise import first
from tests.training.parameter_servers.served import done, lawful, served


@contextlib.contextmanager
def endless(consistency: str, **options: Any) -> Iterator[wb.Run]:
    """A run that would go on forever; over when the test is."""
    fields = {"iterations": LONG, "pad_compute": "2 ms", **options}
    with over_in_the_end(wb.run(served(consistency, **fields))) as run:
        last = run.experiment.ranks - 1
        until(lambda: run.done or clock(run, last) > 3, 60, "the workers train")
        assert not run.done, run.result.error
        yield run


def clock(run: wb.Run, worker: int) -> int:
    """The last iteration that it started."""
    started = of(run.events, kind="clock", rank=worker)["iteration"].max()
    return -1 if started is None else int(started)  # type: ignore[call-overload]


def pushed(run: wb.Run, worker: int) -> int:
    """Its iterations that the server has taken in."""
    return of(run.events, kind="apply", peer=worker).height


def stands_still(run: wb.Run, worker: int, seconds: float = 0.4) -> bool:
    before = clock(run, worker)
    time.sleep(seconds)
    return clock(run, worker) == before


@pytest.mark.alone
@pytest.mark.parametrize(("consistency", "ahead"), [("ssp", 3), ("dssp", 15), ("bsp", 0)])
def test_a_frozen_worker_stops_the_others_exactly_at_the_bound(
    consistency: str, ahead: int
) -> None:
    with endless(consistency) as run:
        run.freeze(2)
        until(lambda: stands_still(run, 1), what="the others stand")
        stood = pushed(run, 2)  # its own clock row may be missing: frozen just after the grant
        for worker in (1, 3):
            led = clock(run, worker) - stood
            assert led == ahead if consistency != "dssp" else 3 <= led <= ahead
        assert not run.done
        run.thaw(2)
        until(lambda: clock(run, 1) > stood + ahead + 20, what="they go on")
        run.stop()
        assert run.wait(timeout=90).ok
    lawful(run, complete=False)


@pytest.mark.alone
def test_a_frozen_worker_stops_no_other_under_asp() -> None:
    with endless("asp") as run:
        run.freeze(2)
        until(lambda: stands_still(run, 2), what="it stands")
        at = clock(run, 2)
        until(lambda: min(clock(run, 1), clock(run, 3)) > at + 60, what="the others go on")
        assert clock(run, 2) == at
        run.thaw(2)
        until(lambda: clock(run, 2) > at + 10, what="it goes on")
        run.stop()
        assert run.wait(timeout=90).ok
    lawful(run, complete=False)


@pytest.mark.parametrize("consistency", ["asp", "ssp"])
@pytest.mark.full
def test_a_worker_that_is_stopped_from_outside_is_an_error_after_the_timeout(
    consistency: str,
) -> None:
    """Under ASP too, where the others first finish without it."""
    exp = served(consistency, timeout="2 s", iterations=60, pad_compute="5 ms")
    run = wb.run(exp)
    run.pause()  # or it might be over before it is stopped
    until(lambda: run.done or {1, 2, 3} <= {*run.held}, 60, "the workers are about to train")
    os.kill(run.pids[2], signal.SIGSTOP)
    run.resume()
    with pytest.raises(wb.RunTimeout, match=r"rank 2 .* is stopped \(SIGSTOP\)"):
        run.wait(timeout=90)
    assert gone(run.pids.values())


@pytest.mark.full
@pytest.mark.parametrize(
    ("consistency", "servers"),
    first(
        1,
        [
            ("ssp", 2),
            ("bsp", 1),
            ("dssp", 1),
            ("asp", 2),
            *(
                pytest.param(*one, marks=pytest.mark.full)
                for one in (("bsp", 2), ("ssp", 1), ("dssp", 2), ("asp", 1))
            ),
        ],
    ),
)
def test_a_worker_that_is_killed_is_waited_for_no_more(consistency: str, servers: int) -> None:
    with endless(consistency, servers=servers) as run:
        victim = servers + 1
        os.kill(run.pids[victim], signal.SIGKILL)
        begin = time.monotonic()
        at = clock(run, servers)
        until(lambda: clock(run, servers) > at + 30, what="the others go on")
        assert time.monotonic() - begin < 5 * crowding()
        assert not run.done
        run.stop()
        result = run.wait(timeout=90)
    assert result.ok and result.lost == [victim]
    notices = of(run.events, kind="detect", name="lost", peer=victim)
    assert {*notices["rank"].to_list()} >= {*range(servers)}
    lawful(run, complete=False)


@pytest.mark.full
def test_training_ends_well_without_a_worker_that_was_killed() -> None:
    exp = served("ssp", workers=3, iterations=60, faults=(wb.Kill(rank=2, at_iteration=10),))
    run, result = done(exp)
    assert result.ok and result.lost == [2]
    events = lawful(run, complete=False)
    assert of(events, kind="apply", peer=2)["iteration"].max() <= 9
    for worker in (1, 3):
        assert of(events, kind="apply", peer=worker).height == 60


def test_a_run_without_workers_left_is_an_error() -> None:
    with endless("asp", workers=2) as run:
        for worker in (1, 2):
            os.kill(run.pids[worker], signal.SIGKILL)
        with pytest.raises(wb.PeerLost):
            run.wait(timeout=90)


@pytest.mark.alone
@pytest.mark.parametrize("consistency", ["bsp", "asp"])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_server_that_is_killed_ends_the_run_with_its_name(consistency: str, victim: int) -> None:
    with endless(consistency, servers=2, workers=2) as run:
        os.kill(run.pids[victim], signal.SIGKILL)
        begin = time.monotonic()
        with pytest.raises(wb.PeerLost, match=f"rank {victim} .*was killed by SIGKILL") as caught:
            run.wait(timeout=90)
        assert time.monotonic() - begin < 2 * crowding()
        assert caught.value.rank == victim
        assert gone(run.pids.values())


LATE = """
import time
import torch.distributed as dist
from workbench.messaging.members import Members
from workbench.tasks.lenet_digits import Task

meet = Members._meet

def late(self, entry, mine):
    time.sleep(0.2)
    return meet(self, entry, mine)

class Late(Task):
    def __init__(self):
        if dist.get_rank() == 1:
            Members._meet = late
"""


def test_a_worker_that_dies_while_another_still_joins_the_groups_is_spared(tmp_path: Path) -> None:
    """Rank 1 is slow to open what the others have told of themselves, as on a busy machine."""
    (tmp_path / "late.py").write_text(LATE)
    kill = wb.Kill(rank=2, at_iteration=0)
    exp = served("asp", workers=2, task=f"{tmp_path}/late.py:Late", iterations=3, faults=(kill,))
    _, result = done(exp)
    assert result.lost == [2] and len(result.losses) == 3


def test_a_run_that_is_stopped_has_its_last_update_whole() -> None:
    """The last pushes of all workers are in, on all servers, before a worker leaves."""
    with endless("bsp", servers=2, dtype="float64") as run:
        run.stop()
        result = run.wait(timeout=90)
    whole = done(served("bsp", servers=2, dtype="float64", iterations=len(result.losses)))[1]
    assert result.losses == whole.losses
    assert set(result.digests.values()) == set(whole.digests.values())

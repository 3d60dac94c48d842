"""Ranks that stay, and cells on them: right ones, and ones that raise, hang, die or are stopped."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator

import workbench as wb
from tests.live import gone, until
from tools.soak.held import descriptors
from tools.soak.runs import Say, interrupt_after
from workbench.cells.result import CellResult
from workbench.cells.team import Ranks

SUM = "x = torch.full((1000,), float(rank)); dist.all_reduce(x); int(x[7])"
BARE = "dist.init_process_group('workbench')\n"
GOOD = {
    "pass on": (
        "y = torch.zeros(10)\n"
        "s = dist.isend(torch.full((10,), float(rank)), (rank + 1) % world_size)\n"
        "dist.recv(y, (rank - 1) % world_size); s.wait()"
    ),
    "groups": (
        "for _ in range(5):\n"
        "    g = dist.new_group(list(range(world_size)))\n"
        "    dist.all_reduce(torch.ones(5), group=g)\n"
        "    dist.destroy_process_group(g)"
    ),
    "big": "dist.all_reduce(torch.ones(1_000_000)); dist.broadcast(torch.ones(300_000), 0)",
    "objects": "l = [None] * world_size; dist.all_gather_object(l, {'rank': rank}); len(l)",
    "prints": "for i in range(300): print('line', i, 'x' * 50)",
    "computes": "float((torch.randn(200, 200) @ torch.randn(200, 200)).sum()) * 0",
    "fails, caught": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass",
}
WRONG = {
    "one raises": "if rank == 0: raise ValueError('mine')\ndist.all_reduce(torch.ones(5))",
    "all raise": "undefined_name",
    "one exits": "import os\nif rank == world_size - 1: os._exit(3)\ndist.barrier()",
    "one is killed": (
        "import os, signal\nif rank == 0: os.kill(os.getpid(), signal.SIGKILL)\ndist.barrier()"
    ),
    "sys.exit": "import sys\nsys.exit(2)",
    "disagree": "dist.all_reduce(torch.ones(5 + rank))",
}  # of one rank some of them are right
ENDLESS = {
    "deadlock": "x = torch.zeros(2); dist.recv(x, (rank + 1) % world_size)",
    "one loops": "if rank == 0:\n    while True: pass\ndist.barrier()",
    "sleeps": "import time\ntime.sleep(1000)",
    "sums forever": "while True: dist.all_reduce(torch.ones(1000))",
    "all loop": "while True: pass",
}


def session(chance: random.Random, say: Say) -> None:
    """As a notebook uses them."""
    size = chance.choice([1, 2, 3, 4])
    say(f"{size} ranks")
    team = wb.ranks(size)
    try:
        _right(team)
        for _ in range(chance.randrange(2, 6)):
            _some_cell(team, chance, say)
        at_first = _settled_descriptors(team)
        for _ in range(2):
            assert not team.execute("undefined_name").ok
        at_last = _settled_descriptors(team)
        assert at_last == at_first, f"descriptors of ranks: {at_first}, {at_last} two groups later"
    except BaseException:
        _end(team)
        raise
    pids = [*team.pids.values()]
    how = chance.choice([team.close, wb.shutdown, lambda: None])
    say({wb.shutdown: "shutdown"}.get(how, "closed" if how == team.close else "forgotten"))
    how()
    del team, how
    until(lambda: gone(pids), 10, "the ranks have ended")


def bare(chance: random.Random, say: Say) -> None:
    """Groups are the user's own."""
    size = chance.choice([2, 3])
    say(f"{size} ranks, bare")
    team = wb.ranks(size, bare=True)
    try:
        for _ in range(chance.randrange(1, 4)):
            backend = chance.choice(["workbench", "gloo"])
            code = f"dist.init_process_group({backend!r})\n{SUM}"
            if chance.random() < 0.5:
                _right(team, code + "\ndist.destroy_process_group()\nint(x[0])")
            else:
                say("left open, then raises")
                _right(team, code)
                assert not team.execute("undefined_name").ok
    finally:
        _end(team)


def _some_cell(team: Ranks, chance: random.Random, say: Say) -> None:
    sort = chance.choice([GOOD, GOOD, WRONG, ENDLESS])
    name = chance.choice([*sort])
    say(name)
    if sort is GOOD:
        with _meanwhile(team, lambda: (team.pause(), time.sleep(0.1), team.resume())):
            assert (result := team.execute(sort[name])).ok, _errors(result)
    elif sort is WRONG:
        result = team.execute(sort[name])
        assert not result.ok or team.size == 1, _errors(result)
    else:
        _endless(team, sort[name], chance, say)
    _right(team)


def _endless(team: Ranks, code: str, chance: random.Random, say: Say) -> None:
    """A cell that does not end: stopped, interrupted, or a rank of it is killed or frozen."""
    how = chance.choice(["stop", "interrupt", "kill", "freeze", "stopped outside"])
    say(how)
    if how == "interrupt":
        with interrupt_after(chance.uniform(0.1, 0.6)):
            result = team.execute(code)
            assert result.interrupted or not result.ok, _errors(result)
        return
    rank, after = chance.randrange(team.size), chance.uniform(0.1, 0.5)
    over = threading.Event()
    acts: dict[str, Callable[[], object]] = {
        "stop": lambda: None,
        "kill": lambda: team.kill(rank),
        "freeze": lambda: team.freeze(rank),
        "stopped outside": lambda: os.kill(team.pids[rank], signal.SIGSTOP),
    }

    def act() -> None:
        time.sleep(after)
        acts[how]()
        while not over.wait(0.2):
            team.stop()

    with _meanwhile(team, act):
        try:
            result = team.execute(code)
        finally:
            over.set()
    assert not result.ok, _errors(result)


@contextlib.contextmanager
def _meanwhile(team: Ranks, act: Callable[[], object]) -> Iterator[None]:
    """``act`` in a thread, once a cell runs; if none does any more, it comes too late."""
    ended = threading.Event()

    def wait_and_act() -> None:
        while team._cell is None and not ended.wait(0.005):
            pass
        if not ended.is_set():
            act()

    thread = threading.Thread(target=wait_and_act, name="meanwhile")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _right(team: Ranks, code: str = SUM) -> None:
    """A cell that any ranks must be able to run, whatever came before."""
    result = team.execute(code)
    whole = str(sum(range(team.size)))
    assert result.ok and result.values == dict.fromkeys(range(team.size), whole), _errors(result)


def _settled_descriptors(team: Ranks) -> list[int]:
    """Return how many each rank has, in a new group that has done one sum."""
    assert not team.execute("undefined_name").ok
    _right(team, f"import gc; gc.collect()\n{SUM}")
    return [len(descriptors(pid)) for pid in team.pids.values()]


def _end(team: Ranks) -> None:
    team.close()
    until(lambda: gone(team.pids.values()), 10, "the ranks have ended")


def _errors(result: CellResult) -> str:
    errors = {rank: error["text"][-300:] for rank, error in result.errors.items()}
    return f"{result.values} {errors} {result.died} {result.notes}"

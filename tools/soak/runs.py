"""Runs of every strategy that are held, slowed, cut and frozen, and end in every way there is."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl
import torch
import torch.distributed as dist

import workbench as wb
from tests.live import gone, training, until
from tools.soak.jobs import experiment
from workbench import laws
from workbench.launchers.processes.pool import warm_pool
from workbench.shared_memory.segments import process_state
from workbench.strategies.data_parallel import average_gradients

Say = Callable[[str], None]
SOON = 20.0  # seconds in which a run that must end has ended, on a machine that is busy
MOST_JUDGED = 40_000  # rows; of a longer run the laws are not asked
REPLICAS = ("data_parallel", "ddp", "fusion")  # whose ranks end with the same bits
WRONGS = ("raises", "leaves", "disagrees", "never ends")  # of a strategy of the user's own
SPARING = ("parameter_server",)  # go on without a worker that has died


# -- what is done to a run that goes on afterwards --


def look(run: wb.Run, chance: random.Random) -> None:
    """As pages do."""
    assert run.events.height >= 0 and run.store.now.height >= 0
    assert run.control_state.standing is not None and run.overhead() is not None


def hold(run: wb.Run, chance: random.Random) -> None:
    run.pause()
    for _ in range(chance.randrange(4)):
        run.step(chance.randrange(1, 3), unit=chance.choice(["chunk", "step", "iteration"]))
    time.sleep(chance.uniform(0, 0.3))
    run.resume()


def freeze(run: wb.Run, chance: random.Random) -> None:
    rank = chance.choice([*run.pids])
    run.freeze(rank)
    time.sleep(chance.uniform(0, 0.6))
    run.thaw(rank)


def stumble(run: wb.Run, chance: random.Random) -> None:
    """Stopped and woken from outside, for less than it takes to be missed."""
    pid = run.pids[chance.choice([*run.pids])]
    os.kill(pid, signal.SIGSTOP)
    time.sleep(chance.uniform(0, 0.3))
    os.kill(pid, signal.SIGCONT)


def cut(run: wb.Run, chance: random.Random) -> None:
    if len(run.pids) < 2:
        return
    source, target = chance.sample([*run.pids], 2)
    run.link(source, target, down=True, both=chance.random() < 0.5)
    time.sleep(chance.uniform(0, 0.5))
    run.link(source, target, down=False, both=True)


def pace(run: wb.Run, chance: random.Random) -> None:
    if len(run.pids) < 2:
        return
    source, target = chance.sample([*run.pids], 2)
    run.link(source, target, latency="2 ms", bandwidth="200 Mbit/s", both=True)
    time.sleep(chance.uniform(0, 0.3))
    run.link(source, target, latency="0 ms", bandwidth="unlimited", both=True)


def slow(run: wb.Run, chance: random.Random) -> None:
    run.slow(chance.choice([*run.pids]), factor=chance.uniform(1, 4))
    run.slow_motion(chance.choice([1, 5, 20]))
    time.sleep(chance.uniform(0, 0.2))
    run.slow_motion(1)


MILD = (look, hold, freeze, stumble, cut, pace, slow)


# -- how a run ends --


def by_itself(chance: random.Random, say: Say) -> None:
    exp = experiment(chance, iterations=chance.randrange(2, 25))
    with _over(exp, say) as run:
        _ended_well(run, complete=True)


def stopped(chance: random.Random, say: Say) -> None:
    with _over(experiment(chance), say) as run:
        _treated(run, chance, say)
        if chance.random() < 0.3 and len(run.pids) > 1:  # what must not keep it from ending
            say("while held, frozen and cut")
            run.pause()
            run.freeze(0)
            run.link(0, 1, down=True)
        say("stop")
        run.stop()
        _ended_well(run)


def interrupted(chance: random.Random, say: Say) -> None:
    with _over(experiment(chance), say) as run:
        _treated(run, chance, say)
        with interrupt_after(chance.uniform(0, 0.3)):
            run.wait(timeout=SOON)
        assert run.done, "not over when wait() passed the interrupt on"
        _ended_well(run)


def killed(chance: random.Random, say: Say) -> None:
    with _over(experiment(chance), say) as run:
        if chance.random() < 0.3:
            time.sleep(chance.uniform(0, 0.5))
            say("killed at start")
        else:
            _treated(run, chance, say)
            if chance.random() < 0.3:
                say("while held")
                run.pause()
                time.sleep(0.05)
        victims = chance.sample([*run.pids], chance.choice([1, 1, 1, min(2, len(run.pids))]))
        say(f"victims {victims}")
        for rank in victims:
            _kill(run, rank)
        _ended_by(run, victims)


def stood_still(chance: random.Random, say: Say) -> None:
    """A rank is stopped from outside, or a link stays cut: an error, after ``timeout``."""
    exp = experiment(chance, timeout="2 s")  # in which groups are made too, on a busy machine
    with _over(exp, say) as run:
        training(run, 1)
        rank = chance.choice([*run.pids])
        if chance.random() < 0.5 or len(run.pids) == 1:
            say(f"rank {rank} stopped for good")
            os.kill(run.pids[rank], signal.SIGSTOP)
        else:
            say(f"rank {rank} cut off for good")
            for other in run.pids:
                if other != rank:
                    run.link(rank, other, down=True, both=True)
        say("waits for its end")
        with contextlib.suppress(AssertionError):
            until(lambda: run.done, 8)
        if not run.done:  # no rank waits for it: a worker that may be late, a process alone
            os.kill(run.pids[rank], signal.SIGCONT)
            run.stop()
            result = run.wait(timeout=60, check=False)  # late enough for one that waited
            assert result.ok or isinstance(result.error, wb.RunTimeout), result.error
        else:
            assert isinstance(run.result.error, wb.RunTimeout | wb.PeerLost), run.result.error


def with_faults(chance: random.Random, say: Say) -> None:
    exp = experiment(chance, iterations=chance.randrange(4, 12))
    rank, at = chance.randrange(exp.ranks), chance.randrange(exp.iterations)
    faults: list[Any] = [
        wb.Kill(rank=rank, at_iteration=at),
        wb.Freeze(rank=rank, at_iteration=at, seconds=chance.uniform(0.05, 1)),
        wb.Slow(rank=rank, factor=3),
        wb.Jitter(probability=0.3, factor=3),
    ]
    some = tuple(chance.sample(faults, chance.randrange(1, 4)))
    with _over(exp.replace(faults=some), say) as run:
        if any(isinstance(fault, wb.Kill) for fault in some):
            _ended_by(run, [rank])
        else:
            _ended_well(run)


def raised(chance: random.Random, say: Say) -> None:
    """The user's own strategy raises, leaves, disagrees or never ends on one rank."""
    number = chance.randrange(4 * len(WRONGS))
    how = WRONGS[number % len(WRONGS)]
    say(how)
    exp = experiment(
        chance,
        strategy=own_strategy,
        ranks=chance.choice([2, 3, 4]),
        seed=number,
        options={},
        timeout="1 s" if how == "never ends" else "20 s",
    )
    with _over(exp, say) as run:
        result = run.wait(timeout=SOON, check=False)
    assert not result.ok
    kind = {"raises": wb.RankError, "leaves": wb.PeerLost, "disagrees": wb.CollectiveError}
    expected = kind.get(how, wb.RunTimeout)
    assert isinstance(result.error, expected), f"{how}: {result.error!r}"


def pool_ended(chance: random.Random, say: Say) -> None:
    """``wb.shutdown()``, or the process that starts ranks is killed, while a run goes on."""
    with _over(experiment(chance), say) as run:
        if chance.random() < 0.7:
            training(run, 1)
        if chance.random() < 0.5:
            say("wb.shutdown()")
            wb.shutdown()
        else:
            say("its pool killed")
            os.kill(warm_pool().pid, signal.SIGKILL)
        result = run.wait(timeout=SOON, check=False)
    assert not result.ok and isinstance(result.error, wb.WorkbenchError)


def two_at_once(chance: random.Random, say: Say) -> None:
    with _over(experiment(chance), say) as one, _over(experiment(chance), say) as other:
        _treated(one, chance, say)
        training(other, 1)
        rank = chance.choice([*other.pids])
        _kill(other, rank)
        _ended_by(other, [rank])
        one.stop()
        _ended_well(one)


def crowd(chance: random.Random, say: Say) -> None:
    """More ranks than cores by far."""
    strategy = chance.choice(["data_parallel", "gossip", "ddp", "local_sgd"])
    exp = experiment(chance, strategy=strategy, ranks=16, batch_size=32, network=wb.Network())
    with _over(exp, say) as run:
        training(run, 2)
        if chance.random() < 0.5:
            rank = chance.choice([*run.pids])
            say(f"rank {rank} killed")
            _kill(run, rank)
            _ended_by(run, [rank])
        else:
            run.stop()
            _ended_well(run)


def own_strategy(job: Any, config: Any) -> None:
    """Data parallel, in which the last rank does something wrong, as the seed says."""
    how, at = WRONGS[job.exp.seed % len(WRONGS)], job.exp.seed // len(WRONGS)
    model = job.model()
    optimizer = job.optimizer(model)
    for minibatch in job.iterations():
        optimizer.zero_grad()
        job.backward(loss := job.forward(model, job.load(minibatch.ids)))
        if minibatch.iteration == at and job.rank == job.ranks - 1:
            if how == "raises":
                raise ValueError("my own mistake")
            if how == "leaves":
                os._exit(7)
            if how == "disagrees":
                dist.all_reduce(torch.ones(3))
            time.sleep(1000)
        average_gradients(job, model, 1 / job.ranks)
        job.update(optimizer)
        job.report(loss, len(minibatch.ids))
    job.finish(model)


# -- what all of them share --


@contextlib.contextmanager
def _over(exp: wb.Experiment, say: Say) -> Iterator[wb.Run]:
    """The run of this experiment, of which nothing must be left in the end."""
    name = exp.strategy if isinstance(exp.strategy, str) else "own"
    algorithm = exp.all_reduce if isinstance(exp.all_reduce, str) else "own"
    say(f"{name} ×{exp.ranks} {algorithm} {dict(exp.options) or ''}")
    run = wb.run(exp)
    try:
        yield run
    finally:
        for pid in run.pids.values():
            with contextlib.suppress(ProcessLookupError):
                if process_state(pid) in "Tt":
                    os.kill(pid, signal.SIGCONT)
        if not run.done:
            for rank in run.pids:
                run.kill(rank)
        run.wait(timeout=SOON, check=False)
        until(lambda: gone(run.pids.values()), 5, "ranks are gone when the run is over")


def _treated(run: wb.Run, chance: random.Random, say: Say) -> None:
    training(run, chance.randrange(3))
    for act in chance.sample(MILD, chance.randrange(4)):
        say(act.__name__)
        act(run, chance)
        assert not run.done, run.result.error


def _kill(run: wb.Run, rank: int) -> None:
    if random.Random(rank).random() < 0.5:
        return run.kill(rank)
    with contextlib.suppress(ProcessLookupError):
        os.kill(run.pids[rank], signal.SIGKILL)


def _ended_well(run: wb.Run, complete: bool = False) -> None:
    """``complete``: it was not stopped, so that no message is under way at its end."""
    result = run.wait(timeout=60)
    assert result.ok and gone(run.pids.values())
    strategy = run.experiment.strategy
    assert len(set(result.digests.values())) <= 1 or strategy not in REPLICAS, result.digests
    if run.experiment.record and not run.dropped and len(run.store) <= MOST_JUDGED:
        lawless = laws.check_events(run.events, complete=complete)
        assert not lawless, "\n".join(map(str, lawless[:5]))


def _ended_by(run: wb.Run, victims: list[int]) -> None:
    """An error that names one of them, or a run that could spare them."""
    sparing = run.experiment.strategy in SPARING
    with contextlib.suppress(AssertionError):
        until(lambda: run.done, 3 if sparing else SOON)
    if not run.done and sparing:
        run.stop()
    result = run.wait(timeout=SOON, check=False)
    if result.ok:
        assert sparing and set(result.lost) <= set(victims), (result.lost, victims)
        return
    assert isinstance(result.error, wb.PeerLost) and result.error.rank in victims, result.error
    assert run.events.select(pl.len()).item() >= 0  # what was recorded can be read


@contextlib.contextmanager
def interrupt_after(seconds: float) -> Iterator[None]:
    """As a user's Ctrl-C, that many seconds later, unless what is inside ends sooner."""
    main = threading.main_thread().ident
    assert main is not None
    fire = threading.Timer(seconds, lambda: signal.pthread_kill(main, signal.SIGINT))
    # A shell's "... &" has it ignored in all that it starts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    fire.start()
    try:
        yield
        while fire.is_alive():
            fire.join(0.01)
    except KeyboardInterrupt:
        pass
    finally:
        fire.cancel()
        fire.join()
        signal.signal(signal.SIGINT, before)

"""The main function of a run's rank processes: take orders, train, report, wait for the end."""

from __future__ import annotations

import importlib
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from workbench.choosing.costs import Costs
from workbench.collectives import takes_of, users_own
from workbench.common import descriptors, ipc
from workbench.common.errors import DataSourceDown, RankError, WorkbenchError
from workbench.common.rank_output import Limited
from workbench.experiment.configure import configure, strategy_options
from workbench.experiment.spec import Experiment
from workbench.experiment.team import Team
from workbench.experiment.traits import traits_of
from workbench.process_group import live_groups
from workbench.process_group.session import Session, use
from workbench.rank import allocation, faults, preemption, stack_dumps
from workbench.rank.job import Job
from workbench.rank.regroup import Membership, join, leave, lost_peers
from workbench.rank.stop_watch import JOINING
from workbench.rank.warm_up import forget_changed
from workbench.recording.events import now
from workbench.recording.recorder import Recorder
from workbench.shared_memory.control_block import ABORTED, DONE, LEAVES, STATE, TRAINING, Control
from workbench.shared_memory.segments import Segment
from workbench.user_code.source import load, split_path

OFTEN = 0.01  # seconds between two looks at peers, in a run that recovers from a lost one
# What else a rank process may be asked to do: module whose ``main(body, fds, driver)`` does it.
_WORKS = {
    "check": "studies.checking.case_runner",
    "cells": "cells.rank",
    "timing": "studies.crossover.timing_rank",
}


def main(driver: socket.socket) -> int:
    """Run in a process fresh from the fork server. Returns its exit code."""
    orders = ipc.receive(driver)
    if orders is None:
        return 0
    body, _, fds = orders
    _take_over(body["environment"])
    descriptors.take_limit(body["files"])
    forget_changed()
    if (work := body.get("work", "train")) != "train":
        result: int = importlib.import_module(f"workbench.{_WORKS[work]}").main(body, fds, driver)
        return result
    rank, pid = body["rank"], os.getpid()
    sys.stdout, sys.stderr = Limited(sys.stdout, rank), Limited(sys.stderr, rank)
    job, seconds = None, 0.0
    try:
        job, seconds = _follow(
            body,
            fds,
            lambda message: ipc.send(driver, {"told": message}),
            partial(_next_team, driver),
        )
        report, payload = _outcome(job, seconds)
    except BaseException as error:
        report, payload = _failure(rank, error), b""
    if os.getpid() != pid:  # a fork that the user's code has made and let go on: not a rank
        os._exit(0)
    try:
        ipc.send(driver, report, payload)
        # Stay until all are done: peers may still read our mailboxes, and the rank whose parameters
        # are the run's may be lost.
        while (orders := ipc.receive(driver)) is not None and job and "report" in orders[0]:
            ipc.send(driver, *_outcome(job, seconds, full=True))
    except OSError:
        pass  # the driver is gone; the guardian sees to the rest
    if dist.is_initialized() and "failed" not in report:
        live_groups.close_all()
    return 0


class _WorkIsOver(Exception):
    """The run needs no more of this rank than its report."""


def _next_team(driver: socket.socket, message: dict[str, Any]) -> Team | None:
    """Tell the driver that this rank has come, or why it cannot go on, and wait for the team that
    it is in next; None: it is in none. Raises _WorkIsOver where no team goes on.
    """
    ipc.send(driver, message)
    orders = ipc.receive(driver)
    if orders is None:
        raise WorkbenchError(ABORTED, how="aborted")
    if "report" in orders[0]:
        raise _WorkIsOver
    fields = orders[0]["team"]
    return Team.from_fields(fields) if fields else None


def _take_over(changes: Mapping[str, str | None]) -> None:
    """Apply the environment variables that the driver set, or removed, since the pool started."""
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if "TZ" in changes:
        time.tzset()


def _follow(
    body: dict[str, Any],
    fds: list[int],
    tell: Callable[[dict[str, str]], None],
    hear_of_team: Callable[[dict[str, Any]], Team | None],
) -> tuple[Job, float]:
    """Train in every generation of the run that this rank is in. Returns its last job, and the
    processor seconds that all took.
    """
    rank, exp = body["rank"], Experiment.from_json(body["spec"])
    session, control, store = _prepare(body, exp, fds)
    fields = body["team"]
    team = Team.from_fields(fields) if fields else hear_of_team({"arrived": rank})
    if team is None:
        preemption.go(session.recorder, by_notice=False)
    place, code, began = Membership(team, team.members.index(rank)), None, time.process_time()
    while True:
        job: Job | None = None
        try:
            join(place, exp, session, store)
            members = getattr(dist.group.WORLD, "members", None)
            if members is not None and members.between_hosts:
                tell({"between hosts": members.between_hosts})
            code = code or code_of(exp)  # which may ask torch for its rank
            job = _job(body, exp, code, place, session, tell)
            train(job, code)
            return job, time.process_time() - began
        except Exception as error:
            cause = lost_peers(session, error, place, exp)
            if cause is None:
                raise
            before = leave(job, place, session, rank, cause)
        completed = -1 if before is None else before.completed
        notice = {"left": rank, "completed": completed, **cause.as_fields()}
        notice["corrupt"] = [*getattr(cause, "replicas", ())]
        notice["waits"] = isinstance(cause, DataSourceDown)
        notice["leaves"] = bool(control.rank_word(rank, LEAVES))
        try:
            next_team = hear_of_team(notice)
        except _WorkIsOver:
            assert job is not None  # it has trained
            return job, time.process_time() - began
        if next_team is None:
            preemption.go(session.recorder, by_notice=notice["leaves"])
        before = None if rank in next_team.fresh else before  # it was left out, and comes back
        place = Membership(next_team, next_team.members.index(rank), before)


def _prepare(
    body: dict[str, Any], exp: Experiment, fds: list[int]
) -> tuple[Session, Control, TCPStore]:
    """Prepare this process: its records and signals, its cores, the store where ranks meet."""
    rank = body["rank"]
    stack_dumps.listen(fds[2], rank)
    control = Control(Segment(fds[0], os.fstat(fds[0]).st_size), exp.ranks)
    recorder = _recorder(exp, rank, fds[1])
    allocation.bound(exp.ranks)
    if exp.bind:
        os.sched_setaffinity(0, cores_of(rank, body["threads"], os.sched_getaffinity(0)))
    os.chdir(body["folder"])  # the driver's, as of now: paths in a spec start there
    torch.set_num_threads(body["threads"])
    session = _session(exp, recorder, control, Costs.from_json(body["costs"]))
    if exp.recovers:
        session.look_s = OFTEN
        preemption.listen()
    use(session)
    faults.listen(exp, rank, recorder, control)
    store = TCPStore(
        body["host"], body["port"], exp.ranks, is_master=False, timeout=timedelta(seconds=JOINING)
    )
    return session, control, store


def _recorder(exp: Experiment, rank: int, fd: int) -> Recorder:
    """Return what this rank records with, in the memory of ``fd``."""
    goes_on = exp.recovers or traits_of(exp.strategy).replicas == "served"  # without a lost rank
    if not exp.record and not goes_on:
        return Recorder.off(rank)
    segment = Segment(fd, os.fstat(fd).st_size)
    return (Recorder.into_segment if exp.record else Recorder.losses_only)(segment, rank)


class _Code(NamedTuple):
    """The task and the strategy of a run, loaded once: a user's own code runs while it is."""

    task: Any
    train: Callable[..., None]
    strategy: ModuleType


def code_of(exp: Experiment) -> _Code:
    """Load the task and the strategy."""
    task = load("tasks", exp.task, "Task")(**exp.task_options)
    train = load("strategies", exp.strategy, "train")
    return _Code(task, train, sys.modules[train.__module__])


def _job(
    body: dict[str, Any],
    exp: Experiment,
    code: _Code,
    place: Membership,
    session: Session,
    tell: Callable[[dict[str, str]], None],
) -> Job:
    """Return this rank's job of one generation."""
    assert session.control is not None
    return Job(
        exp,
        code.task,
        place.rank,
        session,
        session.control,
        place.prepared(body["prepared"]),
        tell,
        traits=traits_of(exp.strategy),
        run=f"{body['run']}-{place.team.generation}",
        team=place.team,
        before=place.before,
    )


def train(job: Job, code: _Code) -> None:
    """Have the strategy train, to the end."""
    exp, control = job.exp, job.control
    control.set_rank(job.run_rank, STATE, TRAINING)
    config = getattr(code.strategy, "Config", None)
    code.train(job, configure(config, strategy_options(exp)) if config is not None else None)
    job.checkpoints.close()
    control.set_rank(job.run_rank, STATE, DONE)


def cores_of(rank: int, threads: int, cores: Collection[int]) -> set[int]:
    """Return the cores that a rank keeps to: the next ``threads`` of them, from the first again
    when all are taken.
    """
    ordered = sorted(cores)
    first = rank * threads
    return {ordered[(first + one) % len(ordered)] for one in range(threads)}


def _session(exp: Experiment, recorder: Recorder, control: Control, costs: Costs) -> Session:
    functions, name = {}, exp.all_reduce
    if not isinstance(name, str) or split_path(name):
        function = load("collectives", name, "all_reduce")
        name = function.__name__
        functions["all_reduce", name] = users_own(function, takes_of(function))
    return Session(
        recorder,
        control=control,
        slot_bytes=exp.chunk_bytes,
        all_reduce=name,
        functions=functions,
        native=exp.backend != "workbench",
        costs=costs,
        joining=JOINING,
    )


def _outcome(
    job: Job, processor_seconds: float, *, full: bool = False
) -> tuple[dict[str, Any], bytes]:
    """Return the report of a rank that has finished. ``full``: with all its parameters."""
    full = full or job.rank == job.speaker or job.partial
    arrays = (
        {name: value.contiguous().numpy() for name, value in job.parameters.items()} if full else {}
    )
    described, payload = ipc.pack_arrays(arrays)
    return {
        "done": job.run_rank,
        "begun": job.begun,
        "losses": job.losses,
        "samples": job.samples,
        "history": job.history,
        "model": job.number,
        "replica": job.replica if job.partial else None,
        "started_ns": job.started_ns,
        "ended_ns": job.ended_ns or now(),
        "digest": job.digest,
        "metrics": job.metrics,
        "bytes_sent": live_groups.bytes_sent(),
        "memory": _peak(job),
        "processor_seconds": processor_seconds,
        "device": str(job.device),
        "parameters": described,
    }, payload


def _peak(job: Job) -> int | None:
    """Return the most bytes that the rank held; None where its activations were not counted."""
    memory = job.memory
    return None if memory is None or not memory.counts_activations else memory.peak


def _failure(rank: int, error: BaseException) -> dict[str, Any]:
    """Return the error as the driver shows it.

    torch wraps ours in a RuntimeError on the way through DDP: unwrap.
    """
    cause = live_groups.first_error() or error
    if words := descriptors.in_words(cause, f"rank {rank}"):
        cause = WorkbenchError(words)
    if words := allocation.in_words(cause, rank):
        cause = RankError(words, rank, how="raised")
    if not isinstance(cause, WorkbenchError):
        cause = RankError("".join(traceback.format_exception(error)), rank, how="raised")
    return {"failed": rank, **cause.as_fields()}

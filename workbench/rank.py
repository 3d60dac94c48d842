"""What every rank process of a run does: take its orders, train, report, wait for the end."""

from __future__ import annotations

import importlib
import os
import socket
import sys
import traceback
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from workbench import process_group, stacks, wire
from workbench.choosing.costs import Costs
from workbench.collectives import takes_of, users_own
from workbench.control import DONE, STATE, TRAINING, Control
from workbench.errors import WorkbenchError
from workbench.events import Recorder, now
from workbench.job import Job
from workbench.launchers.rehearsal import forget_changed
from workbench.printed import Limited
from workbench.session import Session, use
from workbench.shared import Segment
from workbench.source import load, split_path
from workbench.spec import Experiment
from workbench.spec_checks import configure

# What else a rank process may be asked to do: module whose ``main(body, fds, driver)`` does it.
_WORKS = {"check": "checking.rank", "cells": "cells.rank", "timing": "choosing.rank"}


def main(driver: socket.socket) -> int:
    """Run in a process fresh from the nursery. Returns its exit code."""
    orders = wire.receive(driver)
    if orders is None:
        return 0
    body, _, fds = orders
    forget_changed()
    if (work := body.get("work", "train")) != "train":
        found: int = importlib.import_module(f"workbench.{_WORKS[work]}").main(body, fds, driver)
        return found
    rank = body["rank"]
    sys.stdout, sys.stderr = Limited(sys.stdout, rank), Limited(sys.stderr, rank)
    try:
        report, payload = _follow(body, fds, lambda told: wire.send(driver, {"told": told}))
    except BaseException as error:
        report, payload = _failure(rank, error), b""
    try:
        wire.send(driver, report, payload)
        wire.receive(driver)  # stay until everybody is done: peers may still read our mailboxes
    except OSError:
        pass  # the driver is gone; the guardian sees to the rest
    if dist.is_initialized() and "failed" not in report:
        process_group.close_all()
    return 0


def _follow(
    body: dict[str, Any], fds: list[int], tell: Callable[[dict[str, str]], None]
) -> tuple[dict[str, Any], bytes]:
    rank, exp = body["rank"], Experiment.from_json(body["spec"])
    stacks.listen(fds[2], rank)
    control = Control(Segment(fds[0], os.fstat(fds[0]).st_size), exp.ranks)
    recorder = (
        Recorder.into_segment(Segment(fds[1], os.fstat(fds[1]).st_size), rank)
        if exp.record
        else Recorder.off(rank)
    )
    if exp.bind:
        os.sched_setaffinity(0, cores_of(rank, body["threads"], os.sched_getaffinity(0)))
    os.chdir(body["folder"])  # the driver's, as of now: paths in a spec start there
    torch.set_num_threads(body["threads"])
    session = _session(exp, recorder, control, Costs.from_json(body["costs"]))
    use(session)
    store = TCPStore(
        "127.0.0.1", body["port"], exp.ranks, is_master=False, timeout=timedelta(seconds=30)
    )
    dist.init_process_group(
        "workbench", store=PrefixStore("generation 0", store), rank=rank, world_size=exp.ranks,
        timeout=timedelta(microseconds=exp.timeout_ns / 1000),
    )  # fmt: skip
    task = load("tasks", exp.task, "Task")(**exp.task_options)
    train = load("strategies", exp.strategy, "train")
    strategy = sys.modules[train.__module__]
    whole = getattr(strategy, "WHOLE_MINIBATCH", False)
    job = Job(exp, task, rank, session, control, body["prepared"], tell, whole)
    control.set_rank(rank, STATE, TRAINING)
    config = getattr(strategy, "Config", None)
    train(job, configure(config, exp.options) if config is not None else None)
    control.set_rank(rank, STATE, DONE)
    return _outcome(job)


def cores_of(rank: int, threads: int, cores: Collection[int]) -> set[int]:
    """The cores that a rank keeps to: the next ``threads`` of them, from the first again when all
    are given.
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
    )


def _outcome(job: Job) -> tuple[dict[str, Any], bytes]:
    full = job.rank == job.speaker or job.partial
    arrays = (
        {name: value.contiguous().numpy() for name, value in job.parameters.items()} if full else {}
    )
    described, payload = wire.pack_arrays(arrays)
    return {
        "done": job.rank,
        "losses": job.losses,
        "samples": job.samples,
        "model": job.number,
        "replica": job.replica if job.partial else None,
        "started_ns": job.started_ns,
        "ended_ns": job.ended_ns or now(),
        "digest": job.digest,
        "metrics": job.metrics,
        "bytes_sent": process_group.bytes_sent(),
        "memory": None if job.memory is None else job.memory.peak,
        "device": str(job.device),
        "parameters": described,
    }, payload


def _failure(rank: int, error: BaseException) -> dict[str, Any]:
    """The error as the driver shows it.

    torch wraps ours in a RuntimeError on the way through DDP: unwrap.
    """
    cause = process_group.first_error() or error
    ours = isinstance(cause, WorkbenchError)
    text = str(cause) if ours else "".join(traceback.format_exception(error))
    return {
        "failed": rank,
        "kind": type(cause).__name__ if ours else "RankError",
        "text": text,
        "lost": getattr(cause, "rank", -1),
    }

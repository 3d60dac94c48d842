"""What every rank process of a run does: take its orders, train, report, wait for the end."""

from __future__ import annotations

import os
import socket
import sys
import traceback
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from workbench import process_group, wire
from workbench.collectives import users_own
from workbench.control import DONE, STATE, TRAINING, Control
from workbench.errors import WorkbenchError
from workbench.events import Recorder, now
from workbench.job import Job
from workbench.session import Session, use
from workbench.shared import Segment
from workbench.source import load, split_path
from workbench.spec import Experiment
from workbench.spec_checks import configure


def main(driver: socket.socket) -> int:
    """Run in a process fresh from the nursery. Returns its exit code."""
    orders = wire.receive(driver)
    if orders is None:
        return 0
    body, _, fds = orders
    rank = body["rank"]
    try:
        report, payload = _follow(body, fds)
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


def _follow(body: dict[str, Any], fds: list[int]) -> tuple[dict[str, Any], bytes]:
    rank, exp = body["rank"], Experiment.from_json(body["spec"])
    control = Control(Segment(fds[0], os.fstat(fds[0]).st_size), exp.ranks)
    recorder = (
        Recorder.into_segment(Segment(fds[1], os.fstat(fds[1]).st_size), rank)
        if exp.record
        else Recorder.off(rank)
    )
    torch.set_num_threads(body["threads"])
    session = _session(exp, recorder, control)
    use(session)
    store = TCPStore(
        "127.0.0.1", body["port"], exp.ranks, is_master=False, timeout=timedelta(seconds=30)
    )
    dist.init_process_group(
        "workbench", store=PrefixStore("generation 0", store), rank=rank, world_size=exp.ranks,
        timeout=timedelta(microseconds=exp.timeout_ns / 1000),
    )  # fmt: skip
    task = load("tasks", exp.task, "Task")(**exp.task_options)
    job = Job(exp, task, rank, session, control)
    control.set_rank(rank, STATE, TRAINING)
    train = load("strategies", exp.strategy, "train")
    config = getattr(sys.modules[train.__module__], "Config", None)
    train(job, configure(config, exp.options) if config is not None else None)
    control.set_rank(rank, STATE, DONE)
    return _outcome(job)


def _session(exp: Experiment, recorder: Recorder, control: Control) -> Session:
    functions, name = {}, exp.all_reduce
    if not isinstance(name, str) or split_path(name):
        function = load("collectives", name, "all_reduce")
        name = function.__name__
        functions["all_reduce", name] = users_own(function)
    return Session(
        recorder,
        control=control,
        slot_bytes=exp.chunk_bytes,
        all_reduce=name,
        functions=functions,
        native=exp.backend != "workbench",
    )


def _outcome(job: Job) -> tuple[dict[str, Any], bytes]:
    full = job.rank == 0
    arrays = (
        {name: value.contiguous().numpy() for name, value in job.parameters.items()} if full else {}
    )
    described, payload = wire.pack_arrays(arrays)
    return {
        "done": job.rank,
        "losses": job.losses,
        "samples": job.samples,
        "model": job.number,
        "started_ns": job.started_ns,
        "ended_ns": job.ended_ns or now(),
        "digest": job.digest,
        "metrics": job.metrics,
        "bytes_sent": process_group.bytes_sent(),
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

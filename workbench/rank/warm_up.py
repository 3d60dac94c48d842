"""Warm-up of a rank before its run: the first time of anything costs more than all later ones.

Modules are read, validators and regular expressions compiled, kernels generated: the fork server
does that once, in ``learn``, and all its forks inherit it. Memory that a fork writes to (every
Python object that it looks at) is copied page by page, at microseconds per page: so a spare process
runs through the same once more, in ``rehearse``, before it is needed.

Neither changes what a run computes: they draw no random number and change no setting. Both use one
thread only: a fork has only the thread that forked it, and would wait for the others.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from workbench.experiment.spec import Experiment
from workbench.rank.placement import collate, need_samples
from workbench.rank.update_rule import optimizer_of
from workbench.tasks._environments import plays
from workbench.tasks.lenet_digits import Task
from workbench.user_code import source

FOLDERS = ("tasks", "strategies", "collectives", "consistency", "schedules")
SAMPLES = 16  # a rank's part of the default minibatch, 64 of 4 ranks
# Where torch is built for GPUs, seeds are noted for them and the backward pass counts them: what
# was done so before a fork is not fit for use after it.
_CPU_ONLY = not (torch.version.cuda or torch.version.hip or getattr(torch.version, "xpu", None))

times = 0  # rehearsals in this process, or in its parent before the fork
_read: dict[str, Dataset[Any]] = {}  # the default task's samples by split
# A module that was imported -> its file, and when that was written.
_sources: dict[str, tuple[str, int]] = {}


def learn() -> None:
    """Prepare, once in the fork server, what all ranks can inherit."""
    with _one_thread():
        _import_all()
        for split in ("train", "validation"):
            _read[split] = Task().dataset(split)
    rehearse()


def _import_all() -> None:
    # A second's work, for ranks that ask for it: DDP does, and a user's own torch.optim.SGD.
    importlib.import_module("torch._dynamo")
    for folder in FOLDERS:
        for name in source.available(folder):
            with contextlib.suppress(Exception):  # an unfinished file: its own run names the error
                importlib.import_module(f"workbench.{folder}.{name}")
    for name, module in sys.modules.items():
        file = getattr(module, "__file__", None)
        if file and name.startswith(tuple(f"workbench.{folder}." for folder in FOLDERS)):
            _sources[name] = file, _written(file)


def rehearse() -> None:
    """Run an iteration of the default experiment in a spare process, without a trace."""
    global times
    with _one_thread(), torch.random.fork_rng(devices=[]):
        _step(Experiment.from_json(_spec()))
    times += 1


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _step(exp: Experiment) -> None:
    task = Task()
    if _CPU_ONLY:
        torch.manual_seed(exp.seed)
    model = task.model().to(dtype=getattr(torch, exp.dtype))
    optimizer = optimizer_of(exp, model.parameters())
    batch = collate(_read["train"], np.arange(SAMPLES))
    loss = task.loss(model, batch)
    with torch.no_grad():
        task.metrics(model, batch)
    if _CPU_ONLY:
        torch.autograd.backward(loss)
        optimizer.step()


@cache
def _spec() -> str:
    return Experiment().to_json()


def samples_of(task: Any, split: str) -> Any:
    """Return a task's samples: those read before the run, where that is the default task. They are
    handed out once, and belong to their user from then on.
    """
    read = _read.pop(split, None) if type(task) is Task else None
    return task.dataset(split) if read is None else read


def training_samples(task: Any) -> Any:
    """Return the samples that a task is trained on; none where it plays an environment. Raises
    SpecError where there must be some.
    """
    return () if plays(task) else need_samples(samples_of(task, "train"), "train", task)


def forget_changed() -> None:
    """Forget modules that have changed since, at a rank's start: an edited algorithm runs as it is
    now.
    """
    for name, (file, written) in _sources.items():
        if _written(file) != written:
            sys.modules.pop(name, None)


def _written(file: str) -> int:
    """Return when the file was written, in nanoseconds; -1: it does not exist any more."""
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return -1

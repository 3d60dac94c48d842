"""What a rank does for the first time, done before its run: a first time costs more than all later.

Modules are read, validators and regular expressions compiled, kernels generated: that the nursery
does once, in ``learn``, and all its forks inherit it. What a fork writes to (every Python object
that it looks at) is copied page by page, at microseconds a page: so a spare process goes through
the same once more, in ``rehearse``, while nobody waits for it.

Neither leaves a trace in what a run computes: no random number is drawn, no setting changed. Both
keep to one thread: a fork has no other than the one that forked it, and would wait for the rest.
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

from workbench import source
from workbench.placing import collated
from workbench.spec import Experiment
from workbench.tasks.lenet_digits import Task
from workbench.update_rule import optimizer_of

FOLDERS = ("tasks", "strategies", "collectives", "consistency", "schedules")
SAMPLES = 16  # a rank's part of the default minibatch, 64 of 4 ranks
# Where torch is built for GPUs, seeds are noted for them and the backward pass counts them: what
# was done so before a fork is not fit for use after it.
_CPU_ONLY = not (torch.version.cuda or torch.version.hip or getattr(torch.version, "xpu", None))

times = 0  # that this process has rehearsed, or the one that it is a fork of
_read: dict[str, Dataset[Any]] = {}  # the default task's samples by split
_seen: dict[
    str, tuple[str, int]
] = {}  # a module that was imported -> its file, when it was written


def learn() -> None:
    """In the nursery, once: what all ranks can inherit."""
    with _one_thread():
        _import_all()
        for split in ("train", "validation"):
            _read[split] = Task().dataset(split)
    rehearse()


def _import_all() -> None:
    for folder in FOLDERS:
        for name in source.available(folder):
            with contextlib.suppress(Exception):  # somebody is writing it: who runs it is told
                importlib.import_module(f"workbench.{folder}.{name}")
    for name, module in sys.modules.items():
        file = getattr(module, "__file__", None)
        if file and name.startswith(tuple(f"workbench.{folder}." for folder in FOLDERS)):
            _seen[name] = file, _written(file)


def rehearse() -> None:
    """In a spare process: a step of the default experiment, and nothing of it stays."""
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
    batch = collated(_read["train"], np.arange(SAMPLES))
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
    """A task's samples: those that were read before the run, where that is the default one. They
    are handed out once, and are their user's own from then on.
    """
    read = _read.pop(split, None) if type(task) is Task else None
    return task.dataset(split) if read is None else read


def forget_changed() -> None:
    """In a rank, at its start: whoever edits an algorithm sees it run as it is now."""
    for name, (file, written) in _seen.items():
        if _written(file) != written:
            sys.modules.pop(name, None)


def _written(file: str) -> int:
    """When, in nanoseconds; -1: it is there no more."""
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return -1

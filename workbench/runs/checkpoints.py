"""A run's checkpoints in its driver: the one to go on from, its folder, and one more now."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from workbench.checkpoints.folder import (
    Lock,
    Manifest,
    iterations,
    name_of,
    newest,
    read_manifest,
    values_of,
)
from workbench.common.errors import (
    CheckpointError,
    RunTimeout,
    SpecError,
    WorkbenchError,
    short,
)
from workbench.common.names import listed
from workbench.common.units import counted
from workbench.common.user_warnings import warn_user
from workbench.experiment.checkpoint import Checkpoint
from workbench.experiment.spec import Experiment
from workbench.experiment.yaml_text import code_in
from workbench.rank.batches import Sizes
from workbench.shared_memory.control_block import (
    CHECKPOINT,
    CHECKPOINT_ASKED,
    HELD,
    NOT_SAVED,
    SAVED,
    Control,
)
from workbench.store.regular_file import json_of

LARGEST_MINIBATCH = 1 << 40  # samples
# Fields that decide what is trained: with another value it would be another training.
_ORDER = ("seed", "batch_size", "shuffle_buffer")  # of the samples
_SAME = ("strategy", "task", "task_options", *_ORDER, "optimizer", "dtype")


def experiment_of(place: Path, allow_code: bool = False) -> Experiment:
    """Return the experiment of the newest whole checkpoint at ``place``, to go on from it.

    Raises SpecError where there is none, or where it carries code and ``allow_code`` is not set.
    """
    try:
        manifest, _ = newest(place.absolute())
    except CheckpointError as error:
        raise SpecError(str(error)) from None
    if not allow_code and (carrying := list(code_in(manifest.spec))):
        raise SpecError(
            f"the experiment of {manifest.path} carries its author's code in {listed(carrying)}, "
            "and to run it is to run that code. If you trust it: --allow-code"
        )
    return Experiment(**{**manifest.spec, "resume": str(place)})


def checkpoint_of(exp: Experiment) -> Manifest | None:
    """Return the checkpoint that an experiment goes on from; None: it begins at the beginning.

    Raises SpecError for a folder without a whole checkpoint, or with one of another experiment.
    Warns of damaged ones that are newer.
    """
    if exp.resume is None:
        return None
    try:
        manifest, damaged = newest(Path(exp.resume).absolute())
    except CheckpointError as error:
        raise SpecError.at("resume", str(error), exp.resume) from None
    _check(exp, manifest)
    for words in damaged:
        warn_user(f"{words}. The run goes on from {manifest.path.name}.")
    return manifest


def sizes_of(manifest: Manifest) -> Sizes:
    """Return the sizes of the minibatches that were before a checkpoint. Raises SpecError."""
    path = manifest.path / values_of(manifest.present[0])
    try:
        history = json_of(path)["values"]["history"]
        each = [(int(first), int(size)) for first, size in history.get("sizes", ())]
        most = manifest.iteration
        if any(not (0 <= first <= most and 0 < size < LARGEST_MINIBATCH) for first, size in each):
            raise ValueError("no minibatch has such a size")
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        why = f"{path} does not say how large the minibatches were: {str(error)[:200]}"
        raise SpecError.at("resume", why) from None
    return Sizes(manifest.iteration, tuple(each))


def _check(exp: Experiment, manifest: Manifest) -> None:
    """Raise SpecError where the checkpoint is of another experiment, or nothing is left to do."""
    now = exp.model_dump(mode="json")
    for name in _SAME:
        if manifest.spec.get(name) != now[name]:
            raise SpecError.at(
                "resume",
                f"{manifest.path} was written with {name}={short(manifest.spec.get(name))}, and "
                f"this experiment has {name}={now[name]!r}: take the same, or start again without "
                "resume",
                exp.resume,
            )
    if bool(manifest.spec.get("scale_batch")) != exp.scale_batch:
        raise SpecError.at(
            "resume",
            f"{manifest.path} was written with "
            f"scale_batch={bool(manifest.spec.get('scale_batch'))}, and this experiment has "
            f"scale_batch={exp.scale_batch}: its learning rate would be "
            "that of minibatches of another size. Take the same",
            exp.resume,
        )
    if manifest.per_rank and manifest.ranks != exp.ranks:
        raise SpecError.at(
            "resume",
            f"{manifest.path} holds {', '.join(manifest.per_rank)} of each of "
            f"{counted(manifest.ranks, 'rank')}, which differ: go on with ranks={manifest.ranks}",
            exp.resume,
        )
    if manifest.iteration >= exp.iterations:
        raise SpecError.at(
            "resume",
            f"{manifest.path} was written after iteration {manifest.iteration}, and iterations="
            f"{exp.iterations}: nothing is left to do. Raise iterations to train on",
            exp.resume,
        )


def lock_of(exp: Experiment, resumed: Manifest | None) -> Lock | None:
    """Take the folder that an experiment writes checkpoints to. None: it writes none.

    Raises SpecError where another run writes there, where it cannot be written, or where it holds
    newer checkpoints than the one to go on from: they would be lost.
    """
    if exp.checkpoint is None:
        return None
    folder = Path(exp.checkpoint.folder).absolute()
    try:
        lock = Lock(folder)
    except CheckpointError as error:
        raise SpecError.at("checkpoint.folder", str(error), exp.checkpoint.folder) from None
    after = -1 if resumed is None else resumed.iteration
    for iteration in iterations(folder):
        if iteration > after and _is_whole(folder / name_of(iteration)):
            lock.close()
            raise SpecError.at(
                "checkpoint.folder",
                f"has checkpoints of a run before, the newest after iteration {iteration}: go "
                "on from it with resume=..., or name another folder",
                exp.checkpoint.folder,
            )
    return lock


def _is_whole(path: Path) -> bool:
    """Return whether a checkpoint has a manifest."""
    try:
        read_manifest(path)
    except CheckpointError:
        return False
    return True


def write_now(
    plan: Checkpoint | None, control: Control, over: Callable[[], bool], timeout: float
) -> Path:
    """Have the ranks write a checkpoint before their next iteration; wait until it is whole.

    ``over``: whether the run is. Returns the checkpoint's folder. Raises SpecError where the
    experiment names no folder for checkpoints, CheckpointError where it could not be written,
    RunTimeout.
    """
    if plan is None:
        raise SpecError(
            "this run writes no checkpoints: give its experiment a folder for them, "
            'checkpoint=wb.Checkpoint(folder="checkpoints", every=0)'
        )
    words, deadline = control.words, time.monotonic() + timeout
    if not over():
        words[CHECKPOINT] = CHECKPOINT_ASKED
    while not over():
        number = words[CHECKPOINT]
        if number != CHECKPOINT_ASKED and words[NOT_SAVED] == 1 + number:
            raise CheckpointError(
                f"the checkpoint after iteration {number} could not be written: once the run "
                'is over, run.store.metadata["checkpoint problem"] says why'
            )
        if number != CHECKPOINT_ASKED and words[SAVED] >= 1 + number:
            return Path(plan.folder).absolute() / name_of(number)
        if time.monotonic() > deadline:
            held = " The ranks are held: resume() lets them go on." if words[HELD] else ""
            raise RunTimeout(f"no checkpoint after {timeout:g} s; it may still come.{held}")
        time.sleep(0.005)
    raise WorkbenchError("the run is over: its last checkpoint is the newest in its folder")

"""Corrupt data and memory (``wb.Corrupt``, ``run.corrupt``): a sample of a rank's share that cannot
be trained on, or a bit of its parameters that flips.

The sample is the first of the rank's share, the bit is drawn from the seed. What was done is
recorded as a ``fault`` row, whose value is the sample's id, or the place of the parameter's number;
its group is BY_HAND where the user, not the experiment, asked for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from workbench.checkpoints.parts import Parts
from workbench.experiment.spec import Corrupt, Experiment
from workbench.recording.events import CODE
from workbench.recording.recorder import Recorder
from workbench.shared_memory.control_block import (
    BY_HAND,
    CORRUPT,
    CORRUPTIONS,
    LOADS,
    STRUCK,
    Control,
)
from workbench.store.skipped import Skipped


@dataclass
class Skips:
    """The minibatches that a rank has found bad in this generation. ``buffers``: those of its model
    as they were before the iteration that it has ``attempted`` last.
    """

    records: list[Skipped] = field(default_factory=list)
    last: int = -2  # iteration that was left out
    in_a_row: int = 0  # and with it so many
    attempted: int = -1
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)

    def count(self, iteration: int) -> None:
        """Note an iteration that is left out, and how many those are, one after the other."""
        self.in_a_row = self.in_a_row + 1 if self.last == iteration - 1 else 1
        self.last = iteration


class Corruption:
    """The corrupt minibatches of one rank."""

    def __init__(self, exp: Experiment, rank: int, recorder: Recorder, control: Control) -> None:
        self._recorder, self._draw, self._control = recorder, (exp.seed, rank), control
        mine = [one for one in exp.faults if isinstance(one, Corrupt) and one.rank == rank]
        self._flips = {one.at_iteration for one in mine if one.kind == "bitflip"}
        self._faults = {fault.at_iteration: fault for fault in mine if fault.kind != "bitflip"}
        self._whole = False  # has the sample no floating number that could be a NaN?
        self._chosen = (-1, -1)  # the newest iteration with a corrupt sample, and its id
        self._loads = False  # has the driver been told that this rank loads samples?
        self._by_hand: Corrupt | None = None  # the newest that the user asked for

    def of(self, iteration: int) -> Corrupt | None:
        """Return what is done to this iteration's minibatch; None: nothing."""
        return self._faults.get(iteration)

    def samples(self, dataset: Any, ids: np.ndarray, *, mark: bool = True) -> Any:
        """Return the data set, in which one sample may be corrupt: the first that this rank loads
        of the minibatch, however many parts it loads. ``mark``: these samples are trained on.
        """
        iteration = self._recorder.where.iteration
        if mark and len(ids):
            self._hear(iteration)
        fault = self.of(iteration)
        if fault is None or not len(ids):
            return dataset
        if mark and self._chosen[0] != iteration:
            self._chosen = iteration, int(ids[0])
            self._mark(fault.kind, float(ids[0]), by_hand=fault is self._by_hand)
        return _WithOneCorrupt(dataset, self._chosen[1], fault, self._note_whole)

    def _hear(self, iteration: int) -> None:
        """Announce that this rank loads samples, and take the user's wish for this minibatch, if
        there is one and the experiment has none.
        """
        rank = self._draw[1]
        if not self._loads:
            self._loads = True
            self._control.set_rank(rank, LOADS, 1)
        if (kind := self._wish()) not in ("", "bitflip") and iteration not in self._faults:
            self._control.set_rank(rank, CORRUPT, 0)
            # A kind of wb.Corrupt, as run.corrupt() has checked.
            self._by_hand = Corrupt(rank=rank, at_iteration=iteration, kind=kind)  # type: ignore[arg-type]
            self._faults[iteration] = self._by_hand

    def _wish(self) -> str:
        """Return what the user wants done to the next minibatch; "": nothing."""
        number = self._control.rank_word(self._draw[1], CORRUPT)
        return CORRUPTIONS[number - 1] if number else ""

    def _mark(self, kind: str, value: float, *, by_hand: bool) -> None:
        group = BY_HAND if by_hand else ""
        self._recorder.mark(CODE["fault"], f"corrupt {kind}", value=value, group=group)

    def loss(
        self, loss: torch.Tensor, ids: np.ndarray | None = None, *, uses_inputs: bool = True
    ) -> torch.Tensor:
        """Return the loss: a NaN where samples, of whole numbers only, can hold none, or where this
        rank takes only their targets. ``ids``: those that it is of; None: all that it has loaded.
        """
        iteration = self._recorder.where.iteration
        fault = self.of(iteration)
        if fault is None or fault.kind != "nan" or (uses_inputs and not self._whole):
            return loss
        if self._chosen[0] != iteration or (ids is not None and self._chosen[1] not in ids):
            return loss
        return loss * math.nan

    def flip(self, iteration: int, parts: Parts) -> None:
        """Flip the highest bit of the fraction of one number, where that is asked, once."""
        rank, by_hand = self._draw[1], self._wish() == "bitflip"
        due = iteration in self._flips and iteration >= self._control.rank_word(rank, STRUCK)
        if not (due or by_hand):
            return
        if by_hand:
            self._control.set_rank(rank, CORRUPT, 0)
        tensors, buffers = parts.snapshot(everything=True).tensors, parts.buffers()
        trained = [
            one
            for name, one in tensors.items()
            if name.startswith("model/") and name not in buffers and one.numel()
        ]
        if not trained:  # on a rank that only serves
            return
        draw = np.random.default_rng([*self._draw, iteration])
        flat = trained[int(draw.integers(len(trained)))].detach().reshape(-1)
        at = int(draw.integers(len(flat)))
        whole, bit = (torch.int32, 22) if flat.element_size() == 4 else (torch.int64, 51)
        flat.view(whole)[at] ^= 1 << bit
        self._mark("bitflip", float(at), by_hand=by_hand)

    def _note_whole(self) -> None:
        self._whole = True


class _WithOneCorrupt:
    """A data set with one sample that is corrupt."""

    def __init__(
        self, dataset: Any, sample: int, fault: Corrupt, whole: Callable[[], None]
    ) -> None:
        self._dataset, self._sample, self._fault, self._whole = dataset, sample, fault, whole

    def __getitem__(self, i: int) -> Any:
        sample = self._dataset[i]
        if i != self._sample:
            return sample
        if self._fault.kind == "raises":
            raise OSError(f"sample {i} cannot be read, as was asked for: {self._fault!r}")
        spoil = _with_nan if self._fault.kind == "nan" else _without_last_column
        result, done = _first(sample, spoil)
        if not done:
            self._whole()
        return result


def _first(sample: Any, spoil: Callable[[Any], Any | None]) -> tuple[Any, bool]:
    """Return the sample with its first part that ``spoil`` takes spoilt, and whether there is
    one.
    """
    if isinstance(sample, dict):
        parts, done = _first(list(sample.values()), spoil)
        return dict(zip(sample, parts, strict=True)), done
    if isinstance(sample, list | tuple):
        result, done = [], False
        for part in sample:
            new, spoiled = (part, False) if done else _first(part, spoil)
            result.append(new)
            done = done or spoiled
        return result, done
    spoilt = spoil(sample)
    return (sample, False) if spoilt is None else (spoilt, True)


def _with_nan(part: Any) -> Any | None:
    """Return a copy that begins with a NaN; None of whole numbers."""
    if isinstance(part, np.ndarray) and np.issubdtype(part.dtype, np.floating):
        part = part.copy()
        part.reshape(-1)[:1] = math.nan
        return part
    if isinstance(part, torch.Tensor) and part.is_floating_point():
        part = part.clone()
        part.reshape(-1)[:1] = math.nan
        return part
    return math.nan if isinstance(part, float) else None


def _without_last_column(part: Any) -> Any | None:
    """Return the part without the end of its last axis; None of a single number."""
    if isinstance(part, np.ndarray | torch.Tensor) and part.ndim:
        return part[..., :-1]
    return None

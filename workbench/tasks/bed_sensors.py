"""Readings of many hospital beds, in a file per bed: a data set that need not fit into memory.

Each bed is a source of its own. Its file holds rows of 1,024 bytes, a sample each: the readings as
features, and whether an alarm followed. ``ingest`` writes the files, several beds at the same time,
and computes the features once. Training maps the files instead of loading them: a rank reads the
rows of its samples. The operating system keeps as much of a file as there is room for, and drops it
again when there is none. A rank's own (anonymous) memory does not grow with the data.

Data   made up, from a seed for each bed: none comes with the workbench. A sample's number says its
       bed and row, so that a run that goes on after a kill reads the same samples.
Order  ``shuffle_buffer`` of the experiment: with one, a minibatch reads few files.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, Subset

from workbench.common.errors import MissingFiles, short

FOLDER = "bed-sensors"
PLACES = ("folder",)  # options that name what is read: the web app asks its operator for them
READINGS = 255  # of a sample, and one number more: the alarm
VALIDATED = 1024  # samples
OPEN = 8  # files that a rank has mapped at the same time


class Beds(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """The rows of all files, in the order of their names. The newest files in use are mapped."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files
        self._ends = np.cumsum([np.load(one, mmap_mode="r").shape[0] for one in files])
        self._mapped: OrderedDict[int, Any] = OrderedDict()

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        bed = int(np.searchsorted(self._ends, i, side="right"))
        row = self._rows(bed)[i - (int(self._ends[bed - 1]) if bed else 0)]
        values = torch.from_numpy(np.array(row))
        return values[:-1], values[-1]

    def _rows(self, bed: int) -> Any:
        if bed in self._mapped:
            self._mapped.move_to_end(bed)
        else:
            # As a plain array: rows of a memmap are memmaps, too, and slower by ten times.
            self._mapped[bed] = np.asarray(np.load(self._files[bed], mmap_mode="r"))
            if len(self._mapped) > OPEN:
                self._mapped.popitem(last=False)
        return self._mapped[bed]


class Task:
    """Two classes: does an alarm follow these readings?"""

    def __init__(self, *, folder: str = FOLDER) -> None:
        """Configure the task. ``folder``: of the files, as ``ingest`` has written them."""
        self.folder = folder

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(READINGS, 32), nn.Tanh(), nn.Linear(32, 1))

    def dataset(self, split: str) -> Dataset[Any]:
        """Return the samples of ``split``: "validation" is the last bed, as far as it is validated
        at once, "train" all others.
        """
        files = _files(self.folder)
        if split == "train":
            return Beds(files[:-1])
        last = Beds(files[-1:])
        return Subset(last, range(min(VALIDATED, len(last))))

    def loss(self, model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        readings, alarm = batch
        return F.binary_cross_entropy_with_logits(model(readings).squeeze(1), alarm)

    def metrics(self, model: nn.Module, batch: list[torch.Tensor]) -> dict[str, float]:
        readings, alarm = batch
        right = ((model(readings).squeeze(1) > 0) == (alarm > 0.5)).float().mean()
        return {"accuracy": float(right)}


def ingest(
    folder: str | Path,
    *,
    beds: int = 16,
    samples: int = 4096,
    threads: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write a file per bed into ``folder``, ``threads`` beds at the same time. A bed whose file
    is there is not written again. Returns the folder.

    ``samples``: of each bed. ``progress``: called with the beds that are done, and all.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    missing = [bed for bed in range(beds) if not _file(place, bed).is_file()]
    with ThreadPoolExecutor(threads) as pool:  # numpy draws and adds without Python's lock
        written = [pool.submit(write_bed, place, bed, samples) for bed in missing]
        for done, one in enumerate(as_completed(written), beds - len(missing) + 1):
            one.result()
            if progress is not None:
                progress(done, beds)
    return place


def write_bed(place: Path, bed: int, samples: int) -> None:
    """Make the readings of a bed, compute features, and write its file whole or not at all."""
    draw = np.random.default_rng([2, bed])
    raw = draw.normal(size=(samples, READINGS)).cumsum(axis=1)
    features = (raw - raw.mean(axis=1, keepdims=True)) / raw.std(axis=1, keepdims=True)
    often = draw.uniform(-0.5, 0.5)  # some beds are quieter than others
    alarm = features[:, -16:].mean(axis=1, keepdims=True) > often
    path = _file(place, bed)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.save(file, np.hstack([features, alarm]).astype(np.float32))
    partial.replace(path)


def check(folder: str = FOLDER) -> None:
    """Check that there are files. Raises MissingFiles."""
    _files(folder)


def size(folder: str = FOLDER) -> int:
    """Return the number of values that the model holds, without making it."""
    return (READINGS + 1) * 32 + 33


def _files(folder: str | Path) -> list[Path]:
    files = sorted(Path(folder).glob("bed-*.npy"))
    if len(files) < 2:
        raise MissingFiles(
            f"folder = {short(str(folder))}: it holds {len(files)} files bed-*.npy, and at least 2 "
            "are needed: workbench.tasks.bed_sensors.ingest(folder) writes them"
        )
    return files


def _file(place: Path, bed: int) -> Path:
    return place / f"bed-{bed:05d}.npy"

"""A worker's partition: rows as samples of the task, in the shapes that its model takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from workbench.common.errors import SpecError
from workbench.rank.partition_rows import columns_of, inherited, partitions_of
from workbench.user_code.source import Source, load

if TYPE_CHECKING:
    from workbench.rank.job import Job


class Partition:
    """Rows as a data set. ``like``: a sample of the task, whose shapes and types the columns get.

    Raises SpecError where they do not fit.
    """

    def __init__(self, columns: Sequence[np.ndarray], like: Any, task: str) -> None:
        fields = like if isinstance(like, tuple | list) else (like,)
        if len(fields) != len(columns):
            why = f"a row has {len(columns)} fields, and a sample of task {task} {len(fields)}"
            raise SpecError.at("options.rows", why)
        self._columns = [
            _shaped(column, torch.as_tensor(field), number, task)
            for number, (column, field) in enumerate(zip(columns, fields, strict=True))
        ]

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, place: int) -> tuple[torch.Tensor, ...]:
        return tuple(column[place] for column in self._columns)


class OwnRows:
    """The rows of the task's own data set that a worker trains, as if Spark had cut them: parts
    follow each other.
    """

    def __init__(self, samples: Any, worker: int, workers: int) -> None:
        edges = [number * len(samples) // workers for number in (worker, worker + 1)]
        self._samples, self._places = samples, range(*edges)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, place: int) -> Any:
        return self._samples[self._places[place]]


def partition_of(job: Job, rows: str | Source) -> Partition | OwnRows:
    """Return the samples of this rank, a worker's: what Spark gave it, or its own share."""
    worker, workers = job.rank - 1, job.ranks - 1
    columns = inherited()
    if columns is None and not rows:
        part = OwnRows(job.train, worker, workers)
        if not len(part):
            why = f"{workers} workers share {len(job.train)} samples: some have none"
            raise SpecError.at("ranks", why, job.ranks)
        return part
    if columns is None:
        columns = columns_of(partitions_of(load("rows", rows, ""), workers)[worker], worker)
    return Partition(columns, job.train[0], type(job.task).__name__)


def _shaped(column: np.ndarray, like: torch.Tensor, number: int, task: str) -> torch.Tensor:
    each = int(np.prod(column.shape[1:], dtype=np.int64))
    if each != like.numel():
        raise SpecError.at(
            "options.rows",
            f"field {number} of a row has {each} numbers, and of a sample of task {task} "
            f"{like.numel()} (shape {tuple(like.shape)})",
        )
    return torch.from_numpy(np.ascontiguousarray(column)).to(like.dtype).view(-1, *like.shape)

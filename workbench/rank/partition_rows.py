"""The rows of a partition as columns of numbers, and their way from a task of Spark to its rank.

    rows      (features, label), a Row of a DataFrame, or one array: numbers and arrays of numbers
    columns   one array per field, its first axis the rows

A task of Spark is not the rank: the rank is a process below it. So the task writes the columns into
memory without a name, in numpy's own format, whose reader runs no code, and the rank inherits it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from workbench.common import environment
from workbench.common.errors import SpecError, short

VARIABLE = "WORKBENCH_PARTITION"
_NUMBERS = "biuf"  # kinds of numpy's dtypes


def partitions_of(rows: Callable[[None], Any], workers: int) -> Sequence[Any]:
    """Return the partitions that a user's function has without Spark, one per worker."""
    try:
        result = rows(None)
    except Exception as error:
        why = f"rows(None) raised {type(error).__name__}: {error}"
        raise SpecError.at("options.rows", why) from error
    if not isinstance(result, list | tuple):
        raise SpecError.at(
            "options.rows",
            "without Spark, rows(None) returns a list of partitions, each of them rows; this is "
            f"a {type(result).__name__}",
        )
    check_count(len(result), workers)
    return result


def check_count(partitions: int, workers: int) -> None:
    """Raise SpecError unless each worker has a partition, and each partition a worker."""
    if partitions != workers:
        raise SpecError.at(
            "options.rows",
            f"there are {partitions} partitions for {workers} workers: each worker trains one. "
            f"Take ranks={partitions + 1}, or repartition({workers})",
        )


def columns_of(rows: Iterable[Any], partition: int) -> list[np.ndarray]:
    """Return a partition's rows as columns. Raises SpecError, which names the row and field."""
    columns: list[list[np.ndarray]] = []
    where = f"partition {partition}"
    for number, row in enumerate(rows):
        fields = row if isinstance(row, tuple | list) else (row,)
        names = getattr(row, "__fields__", range(len(fields)))
        columns = columns or [[] for _ in fields]
        if len(fields) != len(columns):
            why = f"row {number} of {where} has {len(fields)} fields, others {len(columns)}"
            raise SpecError.at("options.rows", why)
        for name, field, column in zip(names, fields, columns, strict=True):
            place = f"field {name} of row {number} of {where}"
            column.append(_number(field, place))
            if column[-1].shape != column[0].shape:
                raise SpecError.at(
                    "options.rows",
                    f"{place} has the shape {column[-1].shape}, and the first row "
                    f"{column[0].shape}",
                )
    if not columns:
        why = f"{where} has no rows, and its worker would have nothing to train on: repartition"
        raise SpecError.at("options.rows", why)
    return [np.stack(column) for column in columns]


def _number(field: Any, place: str) -> np.ndarray:
    """Return a field as an array of numbers; vectors of Spark's MLlib have ``toArray``."""
    try:
        result = np.asarray(field.toArray() if hasattr(field, "toArray") else field)
    except ValueError:  # arrays of several lengths
        result = np.asarray(None)
    if result.dtype.kind not in _NUMBERS:
        raise SpecError.at(
            "options.rows",
            f"{place} is {short(field)}: a row holds numbers and arrays of numbers. Drop "
            "other columns, or encode them",
        )
    return result


def write(columns: Sequence[np.ndarray]) -> int:
    """Return the descriptor of memory with these columns, for a child to inherit."""
    data = io.BytesIO()
    np.savez(data, *columns)
    fd = os.memfd_create("workbench partition", os.MFD_CLOEXEC)
    with open(os.dup(fd), "wb") as file:
        file.write(data.getbuffer())
    return fd


def inherited() -> list[np.ndarray] | None:
    """Return the columns that this rank was given by a task of Spark; None: it was given none."""
    number = environment.text(VARIABLE)
    if not number:
        return None
    fd = int(number)
    os.lseek(fd, 0, os.SEEK_SET)
    with open(fd, "rb") as file, np.load(file, allow_pickle=False) as arrays:
        return [arrays[name] for name in arrays.files]

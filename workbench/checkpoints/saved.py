"""A checkpoint as a rank reads it: its own values, and rows of tensors of all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from workbench.checkpoints.folder import Manifest, tensors_of, values_of
from workbench.checkpoints.parts import Snapshot
from workbench.checkpoints.rows import Rows
from workbench.common.errors import CheckpointError
from workbench.store.regular_file import json_of


class Saved:
    """A whole checkpoint, opened for one rank of a run that goes on with it."""

    def __init__(self, manifest: Manifest, rank: int, ranks: int) -> None:
        self.manifest, self.rank = manifest, rank
        self.same_ranks = ranks == manifest.ranks
        self._of: dict[int, dict[str, Any]] = {}
        for one in manifest.present:
            self._of[one] = _of_rank(manifest.path / values_of(one))
        source = rank if rank in self._of else manifest.present[0]
        self._order = [
            source,
            *(one for one in self._of if one != source),
        ]  # whose files are asked first
        self._open: dict[int, Any] = {}

    @property
    def iteration(self) -> int:
        """The iteration that training goes on with."""
        return self.manifest.iteration

    def own(self, name: str) -> Any:
        """Return what this rank itself kept under this name; None: nothing, or it is a new rank."""
        return self._of[self.rank]["values"].get(name) if self.rank in self._of else None

    def all(self, name: str) -> list[Any]:
        """Return what ranks kept under this name; this rank's own first."""
        entries = (self._of[one]["values"].get(name) for one in self._order)
        lists = (values if isinstance(values, list) else [values] for values in entries if values)
        return [one for values in lists for one in values]

    def has(self, key: str) -> bool:
        """Return whether any rank has such a tensor."""
        return any(key in self._of[one]["tensors"] for one in self._order)

    def own_tensor(self, key: str) -> torch.Tensor | None:
        """Return a tensor that this rank itself kept."""
        if self.rank not in self._of or key not in self._of[self.rank]["tensors"]:
            return None
        tensor: torch.Tensor = self._file(self.rank).get_tensor(key)
        return tensor

    def tensor(self, key: str, rows: Rows | None = None) -> torch.Tensor:
        """Return a tensor, or these rows of it.

        Raises CheckpointError where the checkpoint does not have all of it.
        """
        parts = [*self._parts(key)]
        if not parts:
            raise CheckpointError(
                f"{self.manifest.path} has no tensor {key!r}: the model, the optimizer or the "
                "strategy's options are not those of the run that wrote it"
            )
        for one, held in parts:
            if held == rows or (rows is not None and held is None and self._is_all(one, key, rows)):
                whole: torch.Tensor = self._file(one).get_tensor(key)
                return whole
        return self._gathered(key, parts, rows)

    def snapshot(self, total: int, rows: Rows) -> Snapshot:
        """Return these rows of all tensors that have ``total`` of them, divided over ranks, with
        what else the first rank that has such tensors kept.
        """
        result = Snapshot()
        for one in self._order:
            for key, held in self._of[one]["tensors"].items():
                if key in result.tensors:
                    continue
                if held is not None and held[0] == total:
                    result.tensors[key], result.rows[key] = self.tensor(key, rows), rows
                else:
                    result.tensors[key], result.rows[key] = self.tensor(key), None
        for one in self._order:
            for name, values in self._of[one]["values"].items():
                result.values.setdefault(name, values if isinstance(values, list) else [values])
        return result

    def _gathered(
        self, key: str, parts: list[tuple[int, Rows | None]], rows: Rows | None
    ) -> torch.Tensor:
        """Put rows together of those that ranks hold."""
        whole: torch.Tensor | None = None
        left = -1
        for one, held in parts:
            piece = self._file(one).get_slice(key)
            shape = piece.get_shape()
            held = Rows.whole(shape[0]) if held is None else held
            if len(held) != shape[0]:
                break
            rows = Rows.whole(held.total) if rows is None else rows
            if whole is None:
                dtype = self._file(one).get_tensor(key).dtype
                whole, left = torch.empty((len(rows), *shape[1:]), dtype=dtype), len(rows)
                present = torch.zeros(len(rows), dtype=torch.bool)
            for to, start, count in rows.shared_with(held):
                if bool(present[to : to + count].all()):
                    continue
                whole[to : to + count] = piece[start : start + count]
                present[to : to + count] = True
            left = int((~present).sum())
            if not left:
                return whole
        raise CheckpointError(f"{self.manifest.path} lacks rows of {key!r}: it is of another model")

    def _parts(self, key: str) -> Iterator[tuple[int, Rows | None]]:
        for one in self._order:
            if key in (tensors := self._of[one]["tensors"]):
                rows = tensors[key]
                try:
                    held = None if rows is None else _rows(*rows)
                except (TypeError, ValueError, LookupError, ArithmeticError) as error:
                    path = self.manifest.path / values_of(one)
                    raise CheckpointError(f"{path}: no rows of {key!r} are so: {error}") from None
                yield one, held

    def _is_all(self, one: int, key: str, rows: Rows) -> bool:
        shape = self._file(one).get_slice(key).get_shape()
        return bool(shape) and rows == Rows.whole(shape[0])

    def _file(self, rank: int) -> Any:
        from safetensors import SafetensorError, safe_open

        if rank not in self._open:
            path = self.manifest.path / tensors_of(rank)
            try:
                self._open[rank] = safe_open(path, framework="pt")
            except (OSError, SafetensorError) as error:
                raise CheckpointError(f"{path} cannot be read: {error}") from None
        return self._open[rank]


def _of_rank(path: Path) -> dict[str, Any]:
    """Return the values of one rank's file. Raises CheckpointError."""
    try:
        result: dict[str, Any] = json_of(path)
        if not all(isinstance(result[part], dict) for part in ("values", "tensors")):
            raise ValueError("its parts are not what a rank writes")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be read: {str(error)[:200]}") from None
    return result


def _rows(total: Any, ranges: Any) -> Rows:
    """Return rows as a rank has written them. Raises ValueError or TypeError."""
    pairs = tuple((start, stop) for start, stop in ranges)
    numbers = (total, *(one for pair in pairs for one in pair))
    if not all(isinstance(one, int) and 0 <= one <= total for one in numbers):
        raise ValueError("numbers of rows are expected")
    return Rows(total, pairs)

"""A tensor that is divided over ranks by its rows, as FSDP divides a parameter."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ByRows:
    """So many rows. ``row``: how many elements, or bytes, each has; results are in the same."""

    rows: int
    row: int

    @property
    def total(self) -> int:
        return self.rows * self.row

    def part(self, place: int, ranks: int) -> int:
        """Return what this rank's rows have."""
        each = -(-self.rows // ranks)
        return self.row * max(0, min(each, self.rows - place * each))

    def padded(self, ranks: int) -> int:
        """Return what all rows have, filled up to as many for each rank."""
        return self.row * -(-self.rows // ranks) * ranks

"""The minibatches that a run left out, as they are stored with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

KEY = "skipped"  # of the metadata; "skipped 3.0" are those that rank 3 found in generation 0


@dataclass(frozen=True)
class Skipped:
    """One minibatch that all ranks left out, or a rank's share of it that it left out alone, as one
    rank found it.

    ``rank``: the one that found it. ``why``: the error, or that its gradient is not finite.
    ``samples``: the ids of all that was left out; ``bad``: those of the rank's share that are bad
    by themselves. ``layer``: the first whose output is not finite; ``parameters``: whose
    gradient is not.
    """

    iteration: int
    rank: int
    why: str
    samples: tuple[int, ...]
    bad: tuple[int, ...]
    layer: str
    parameters: tuple[str, ...]

    @property
    def words(self) -> str:
        """What was wrong, in a sentence."""
        where = f", first in layer {self.layer}" if self.layer else ""
        if self.parameters:
            more = len(self.parameters) - 1
            where += f", of parameter {self.parameters[0]}" + (f" and {more} more" if more else "")
        which = f"; of its samples {list(self.bad)} bad by themselves" if self.bad else ""
        return f"rank {self.rank}, iteration {self.iteration + 1}: {self.why}{where}{which}"

    def __repr__(self) -> str:
        return self.words

    def as_fields(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def skipped_of(metadata: Mapping[str, str]) -> list[Skipped]:
    """Return the minibatches that a run left out, in order. What is damaged is left out."""
    skipped: dict[tuple[int, int], Skipped] = {}  # of one that was tried again, the last
    for key in sorted(metadata, key=lambda key: (len(key), key)):
        if not key.startswith(f"{KEY} "):
            continue
        try:
            for one in json.loads(metadata[key]):
                samples, bad = (tuple(map(int, one[name])) for name in ("samples", "bad"))
                iteration, rank, why = int(one["iteration"]), int(one["rank"]), str(one["why"])
                layer, parameters = str(one["layer"]), tuple(map(str, one["parameters"]))
                skipped[iteration, rank] = Skipped(
                    iteration, rank, why, samples, bad, layer, parameters
                )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            pass
    return [skipped[numbers] for numbers in sorted(skipped)]

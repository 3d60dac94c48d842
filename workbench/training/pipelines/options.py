"""The options of the strategy, as a pipeline reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Options(Protocol):
    """The options that a pipeline needs; the ``Config`` of ``strategies/pipeline.py`` explains
    each.
    """

    @property
    def microbatches(self) -> int: ...
    @property
    def split(self) -> str | Sequence[str]: ...
    @property
    def memory_weight(self) -> float: ...
    @property
    def buddy_every(self) -> int: ...

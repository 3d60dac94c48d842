"""The options of the strategy, as a rank of a mesh reads them."""

from __future__ import annotations

from typing import Protocol

from workbench.training.pipelines.options import Options


class MeshOptions(Options, Protocol):
    """The options that a rank of a mesh needs; ``strategies/mesh.py`` explains each."""

    @property
    def mesh(self) -> str: ...
    @property
    def zero(self) -> int: ...
    @property
    def sequence_parallel(self) -> bool: ...

"""The options of the strategy, as servers and workers read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from workbench.user_code.source import Source


class Options(Protocol):
    """The options of ``strategies/parameter_server.py`` that servers and workers need.

    Its ``Config`` explains each.
    """

    @property
    def servers(self) -> int: ...
    @property
    def models(self) -> int: ...
    @property
    def shares(self) -> Sequence[float] | None: ...
    @property
    def placement(self) -> str | Sequence[float]: ...
    @property
    def consistency(self) -> str | Source: ...
    @property
    def staleness(self) -> int: ...
    @property
    def staleness_max(self) -> int: ...
    @property
    def dssp_mode(self) -> str: ...
    @property
    def stale_gradients(self) -> str: ...
    @property
    def drop_above(self) -> int: ...
    @property
    def replicas(self) -> int: ...
    @property
    def restored_from(self) -> str: ...

"""The options of the strategy, as servers and workers read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """Options of a server of another strategy: what its own ``Config`` does not say."""

    servers: int = 1
    placement: Any = "even"
    stale_gradients: str = "keep"
    drop_above: int = 0
    consistency: str
    models: int = 1
    shares: None = None
    staleness: int = 0
    staleness_max: int = 0
    dssp_mode: str = "strict"
    replicas: int = 1
    restored_from: str = "pull"

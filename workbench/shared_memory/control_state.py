"""The control state of a run at one moment, as displays show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from workbench.common.errors import How
from workbench.shared_memory.link_state import LinkState


@dataclass(frozen=True, slots=True)
class ControlState:
    """The control state of the ranks at one moment, for displays of a run."""

    held: bool  # the user holds the ranks
    standing: tuple[int, ...]  # ranks that stand at a gate
    slow_motion: float  # 1: full speed
    slow: Mapping[int, float]  # rank -> factor of its compute spans, where that is not 1
    frozen: tuple[int, ...]
    links: Mapping[tuple[int, int], LinkState]  # the emulated ones, by (sender, receiver)
    arrived: tuple[int, ...] = ()  # ranks whose process has begun its work
    ended: Mapping[int, str] = field(default_factory=dict)  # rank -> how it ended, in words
    how: Mapping[int, How] = field(default_factory=dict)  # the same as a code: "killed", "raised"
    loads: tuple[int, ...] = ()  # ranks that load samples themselves
    corrupts: tuple[int, ...] = ()  # ranks whose next minibatch is to be corrupt
    cut_off: Mapping[int, str] = field(default_factory=dict)  # rank -> its host, which is cut off

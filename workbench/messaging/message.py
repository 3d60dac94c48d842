"""A message of a collective, as communicator, mover, slots and walks pass it to each other."""

from __future__ import annotations

from typing import Any, NamedTuple


class Message(NamedTuple):
    """A tensor that goes to ``peer``, or comes from there, and its place in the algorithm.

    The order is that of the mover's arguments. ``x``: or a slot of it; several chunks in one
    message are lists, of tensors and of their numbers. ``slot``: the number of its first one.
    ``phase``: the number of a name; the name itself until it is looked up.
    """

    x: Any
    peer: Any  # a rank of the group
    step: int
    chunk: Any
    slot: int
    phase: Any

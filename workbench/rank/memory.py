"""The ledger of a rank's memory: parameters, gradients, optimizer state, activations and more.

Each is counted where it is held, and every change is a row of the event table (bands.py).
Parameters, gradients and the optimizer's state are always counted, but for its counters of steps
(4 bytes a tensor). Activations are counted where the experiment has a ``memory_limit``, or the
strategy asks for it.

Activations are those that autograd keeps for backward passes. They are counted by torch's hooks on
saved tensors, each storage once, from the moment at which a forward saves it until the last that
refers to it lets go. What a single operation needs while it runs (workspaces, temporaries) and what
the interpreter and the data set take is not counted.

Source  https://docs.pytorch.org/docs/stable/autograd.html#saved-tensors-hooks
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn

from workbench.common.errors import MemoryLimit
from workbench.experiment.traits import with_traits
from workbench.rank.bands import ACTIVATIONS, GRADIENTS, OPTIMIZER, PARAMETERS, Band, Bands
from workbench.rank.layers import layers
from workbench.recording.recorder import Recorder


class Held:
    """A tensor that counts for the lifetime of this object.

    Hot: there is one per tensor that a forward saves.
    """

    __slots__ = ("address", "memory", "nbytes", "tensor")

    def __init__(self, memory: Memory, tensor: torch.Tensor, address: int, nbytes: int) -> None:
        """Count ``tensor``; ``address`` and ``nbytes`` are those of its storage."""
        # Detached: an output that its own graph keeps would keep the graph in turn, forever.
        self.tensor = tensor if tensor.grad_fn is None else tensor.detach()
        self.memory, self.address, self.nbytes = memory, address, nbytes
        refers = memory.refers
        if address in refers:
            refers[address][0] += 1
        else:
            band = memory.band
            if band is None:
                band = memory.band = memory.bands.here(ACTIVATIONS, memory.layer)
            refers[address] = [1, band]
            band.nbytes += nbytes
            memory.bands.changed[band] = None
            memory.activations += nbytes
            if memory.fixed_bytes + memory.activations > memory.peak:
                memory.check()

    def __del__(self) -> None:
        memory = self.memory
        of = memory.refers[self.address]
        of[0] -= 1
        if not of[0]:
            del memory.refers[self.address]
            memory.activations -= self.nbytes
            band = of[1]
            band.nbytes -= self.nbytes
            memory.bands.changed[band] = None  # written later: this may run in between any two
            memory.freed |= not band.nbytes


class Memory:
    """Bytes that one rank holds now, and the most that it has held.

    ``limit``: bytes, or None. Raises MemoryLimit at the very moment at which more is held.
    """

    @property
    def remedy(self) -> str:
        """Return what helps a rank that holds too much, as an error says it."""
        fitting = with_traits(lambda traits: traits.replicas == "divided")
        return (
            f"Split the model over ranks (strategy={' or '.join(map(repr, fitting))}), make "
            "minibatches or microbatches smaller, or raise the limit"
        )

    def __init__(
        self, rank: int, limit: int | None = None, recorder: Recorder | None = None
    ) -> None:
        self.rank, self.limit = rank, limit
        self.counts_activations = limit is not None  # else hooks would cost microseconds each
        self.activations = self.peak = 0
        # All other kinds; and all of them, added up.
        self.fixed = dict.fromkeys((PARAMETERS, GRADIENTS, OPTIMIZER), 0)
        self.fixed_bytes = 0
        self.refers: dict[int, list[Any]] = {}  # how many, and their band, by address of a storage
        self.bands = Bands(recorder)
        self.freed = False  # has a layer let go of all its activations, and is it not written?
        self.layer = ""  # of the forward that runs now,
        self.band: Band | None = None  # and its band
        self._parameters: dict[int, tuple[torch.Tensor, int]] = {}  # by id, with its bytes
        self._ours: set[int] = set()
        self._with_gradient: set[int] = set()  # by id of a parameter
        # With how many parameters each had state when it was weighed, and the bytes of that.
        self._optimizers: dict[weakref.ref[torch.optim.Optimizer], tuple[int, int]] = {}

    @classmethod
    def of(cls, rank: int, limit: int | None, recorder: Recorder) -> Memory | None:
        """Return what counts on this rank; None where nothing asks for it."""
        return None if limit is None and not recorder.active else cls(rank, limit, recorder)

    def watch(self, parameters: Iterable[torch.Tensor], *optimizers: torch.optim.Optimizer) -> None:
        """Count these, their gradients and their state."""
        self._parameters |= {id(one): (one, _nbytes([one])) for one in parameters}
        self._optimizers |= {weakref.ref(one): (-1, 0) for one in optimizers}
        held = [one for one, _ in self._parameters.values()]
        self._ours = {_own(one).untyped_storage().data_ptr() for one in held}
        self.set(PARAMETERS, self.parameter_bytes())
        self.weigh()

    def parameter_bytes(self) -> int:
        """Return the bytes of the parameters that are held between iterations."""
        return sum(nbytes for _, nbytes in self._parameters.values())

    def follow(self, model: nn.Module) -> None:
        """Attribute activations to this model's layers, and count gradients as they come."""
        if not self.counts_activations:
            return
        for module, name in layers(model).items():
            module.register_forward_pre_hook(partial(self._enter, name))
            module.register_forward_hook(partial(self._enter, ""), always_call=True)
        for one in model.parameters():
            if one.requires_grad:
                held: Any = one  # torch has no types for this
                held.register_post_accumulate_grad_hook(self._arrived)

    def weigh(self) -> int:
        """Return the bytes held now; look again at gradients and optimizer state."""
        self.weigh_state()
        return self.weigh_gradients()

    def weigh_state(self) -> None:
        """Look again at the optimizers' state, after an update, which changes no gradient."""
        self._optimizers = {
            ref: known
            for ref, before in self._optimizers.items()
            if (known := _state(ref(), before)) is not None
        }
        self.set(OPTIMIZER, sum(nbytes for _, nbytes in self._optimizers.values()))

    def weigh_gradients(self) -> int:
        """Return the bytes held after a backward pass, which changes no optimizer state: this is
        called often.
        """
        held = {key: n for key, (one, n) in self._parameters.items() if one.grad is not None}
        self._with_gradient = set(held)
        self.set(GRADIENTS, sum(held.values()))
        return self.held

    def change(self, kind: str, nbytes: int, layer: str = "") -> None:
        """Add ``nbytes`` (negative: fewer) to what this layer holds of this kind."""
        self.set(kind, self.bands.standing(kind, layer).nbytes + nbytes, layer)

    def set(self, kind: str, nbytes: int, layer: str = "") -> None:
        """Note that this layer holds so many bytes of this kind."""
        self._take(kind, nbytes, layer)
        self.write()
        self.check()

    def _take(self, kind: str, nbytes: int, layer: str = "") -> None:
        band = self.bands.standing(kind, layer)
        if change := nbytes - band.nbytes:
            band.nbytes = nbytes
            self.fixed[kind] = self.fixed.get(kind, 0) + change
            self.fixed_bytes += change
            self.bands.changed[band] = None

    def write(self) -> None:
        """Write a row for each band that has changed."""
        self.freed = False
        if self.bands.changed:
            self.bands.write({**self.fixed, ACTIVATIONS: self.activations})

    @property
    def held(self) -> int:
        return self.fixed_bytes + self.activations

    # -- activations --

    def saving(self) -> AbstractContextManager[None]:
        """Count what autograd saves inside, if activations are counted."""
        return self.counting() if self.counts_activations else nullcontext()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what autograd saves inside."""
        self._enter("")
        with torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack):
            yield
        self._enter("")

    def hold(self, tensor: torch.Tensor) -> Held:
        """Count this tensor for the lifetime of the result."""
        storage = tensor.untyped_storage()
        return Held(self, tensor, storage.data_ptr(), storage.nbytes())

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor | Held:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address in self._ours:
            return tensor
        return Held(self, tensor, address, storage.nbytes())

    def _enter(self, layer: str, *_: object) -> None:
        """Attribute to this layer what is saved from now on."""
        self.layer, self.band = layer, None
        self.write()

    def _arrived(self, parameter: torch.Tensor) -> None:
        """Count a gradient that a backward pass under way has computed."""
        key = id(parameter)
        if key in self._parameters and key not in self._with_gradient:
            self._with_gradient.add(key)
            before = self.bands.standing(GRADIENTS, "").nbytes
            self._take(GRADIENTS, before + self._parameters[key][1])
        if self.freed or self.held > self.peak:  # not for each parameter: a row costs microseconds
            self.write()
            self.check()

    def check(self) -> None:
        """Note how much is held, and check it against the limit."""
        held = self.held
        self.peak = max(self.peak, held)
        if self.limit is not None and held > self.limit:
            self.write()
            parts = {**self.fixed, ACTIVATIONS: self.activations}
            text = ", ".join(f"{name} {megabytes(number)}" for name, number in parts.items())
            raise MemoryLimit(
                f"rank {self.rank} holds {megabytes(held)} ({text}), more than memory_limit = "
                f"{megabytes(self.limit)}. {self.remedy}"
            )


def megabytes(nbytes: int) -> str:
    """Format bytes for messages: rounded, so that two sizes can be compared at a glance."""
    return f"{nbytes / 1e6:,.3f} MB"


def _nbytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(one.numel() * one.element_size() for one in map(_own, tensors))


def _state(
    optimizer: torch.optim.Optimizer | None, before: tuple[int, int]
) -> tuple[int, int] | None:
    """Return of how many parameters the optimizer has state, and its bytes; None: it is gone."""
    if optimizer is None:
        return None
    if len(optimizer.state) == before[0]:
        return before
    state = [
        value
        for each in optimizer.state.values()
        for key, value in each.items()
        if isinstance(value, torch.Tensor) and key != "step"
    ]
    return len(optimizer.state), _nbytes(state)


def _own(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's shard of a DTensor."""
    part: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


def _unpack(packed: torch.Tensor | Held) -> torch.Tensor:
    return packed.tensor if isinstance(packed, Held) else packed

"""The memory of a rank's training: parameters, gradients, optimizer state, activations.

Each is counted where it is held; activations are those that autograd keeps for backward passes.

Activations are counted by torch's hooks on saved tensors, each storage once, from the moment at
which a forward saves it until the last that refers to it lets go. What a single operation needs
while it runs (workspaces, temporaries) and what the interpreter and the data set take is not
counted.

Source  https://docs.pytorch.org/docs/stable/autograd.html#saved-tensors-hooks
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from workbench.common.errors import MemoryLimit
from workbench.experiment.traits import with_traits


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
            refers[address] += 1
        else:
            refers[address] = 1
            memory.activations += nbytes
            if memory.fixed_bytes + memory.activations > memory.peak:
                memory.check()

    def __del__(self) -> None:
        refers = self.memory.refers
        refers[self.address] -= 1
        if not refers[self.address]:
            del refers[self.address]
            self.memory.activations -= self.nbytes


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

    def __init__(self, rank: int, limit: int | None = None) -> None:
        self.rank, self.limit = rank, limit
        self.activations = self.peak = 0
        # What stays from iteration to iteration, by kind; and all of it, added up.
        self.fixed = dict.fromkeys(("parameters", "gradients", "optimiser state"), 0)
        self.fixed_bytes = 0
        self.refers: dict[int, int] = {}  # how many, by address of a storage
        self._parameters: list[tuple[torch.Tensor, int]] = []  # with its bytes
        self._ours: set[int] = set()
        self._optimizers: list[torch.optim.Optimizer] = []

    def watch(self, parameters: Iterable[torch.Tensor], *optimizers: torch.optim.Optimizer) -> None:
        """Count these, their gradients and their state."""
        self._parameters += ((one, _nbytes([one])) for one in parameters)
        self._optimizers += optimizers
        self._ours = {_own(one).untyped_storage().data_ptr() for one, _ in self._parameters}
        self.fixed["parameters"] = sum(nbytes for _, nbytes in self._parameters)
        self.weigh()

    def weigh(self) -> int:
        """Return the bytes held now; look again at gradients and optimizer state."""
        state = [
            value
            for optimizer in self._optimizers
            for each in optimizer.state.values()
            for value in each.values()
            if isinstance(value, torch.Tensor)
        ]
        self.fixed["optimiser state"] = _nbytes(state)
        return self.weigh_gradients()

    def weigh_gradients(self) -> int:
        """Return the bytes held after a backward pass, which changes no optimizer state: this is
        called often.
        """
        self.fixed["gradients"] = sum(
            nbytes for one, nbytes in self._parameters if one.grad is not None
        )
        self.fixed_bytes = sum(self.fixed.values())
        self.check()
        return self.held

    @property
    def held(self) -> int:
        return self.fixed_bytes + self.activations

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what autograd saves inside."""
        with torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack):
            yield

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

    def check(self) -> None:
        """Note how much is held, and check it against the limit."""
        held = self.held
        self.peak = max(self.peak, held)
        if self.limit is not None and held > self.limit:
            parts = {**self.fixed, "activations": self.activations}
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


def _own(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's shard of a DTensor."""
    part: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


def _unpack(packed: torch.Tensor | Held) -> torch.Tensor:
    return packed.tensor if isinstance(packed, Held) else packed

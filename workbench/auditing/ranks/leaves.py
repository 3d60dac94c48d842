"""The leaves of a script: which tensors are parameters, what they are called, how they are nudged.

A tensor is a leaf that counts from its first use on. Parameters are named as their modules name
them, from the largest module down; other tensors as the script's code does.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import torch

from workbench.auditing.messages import Copy, direction

WRAPPERS = {"module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of it that is here, as a plain tensor that shares its memory."""
    part = getattr(tensor, "_local_tensor", tensor)
    result: torch.Tensor = part.detach()
    return result


def is_here(tensor: torch.Tensor) -> bool:
    """Return whether its memory is still held: FSDP lets go of whole parameters."""
    part = local(tensor)
    return not part.is_meta and part.untyped_storage().nbytes() >= part.nbytes


def is_flat(tensor: torch.Tensor) -> bool:
    """Return whether it is a flat parameter of torch's first FSDP."""
    return type(tensor).__name__ == "FlatParameter"


def names() -> dict[int, tuple[str, str]]:
    """Return name and class of module of each parameter of all modules alive, by its id."""
    result: dict[int, tuple[str, str]] = {}
    modules = [one for one in gc.get_objects() if issubclass(type(one), torch.nn.Module)]
    # By size: an only child must not give the name in one run and its parent in another.
    modules.sort(key=lambda m: (-sum(1 for _ in m.parameters()), -sum(1 for _ in m.modules())))
    for module in modules:
        for prefix, part in module.named_modules():
            for name, tensor in part._parameters.items():
                if tensor is not None:
                    words = [w for w in f"{prefix}.{name}".split(".") if w and w not in WRAPPERS]
                    result.setdefault(id(tensor), (".".join(words), type(part).__name__))
    return result


class Entry:
    """A leaf that was used."""

    def __init__(self, name: str, tensor: torch.Tensor, owner: str) -> None:
        self.name, self.tensor, self.owner = name, tensor, owner
        self.parts: torch.Tensor | None = None  # the gradient of this rank's own passes
        self.place: int | None = None
        self.optimized = False
        self.shards = None
        divided: Any = tensor
        if hasattr(divided, "placements"):
            at = divided.device_mesh.get_coordinate()
            pairs = zip(divided.placements, at, strict=True)
            self.shards = [[str(one), where] for one, where in pairs if one.is_shard()]
        self.before = local(tensor).clone()

    def begin(self, nudge: tuple[str, float] | None) -> None:
        """Take the tensor as it is for its start, after a nudge."""
        here = local(self.tensor)
        if nudge is not None:
            key, eps = nudge
            step = torch.from_numpy(np.asarray(eps * direction(key, tuple(here.shape))))
            with torch.no_grad():
                here.add_(step.to(here.dtype).to(here.device))
        self.before = here.clone()

    @property
    def has_changed(self) -> bool:
        return not torch.equal(local(self.tensor), self.before)

    def arrived(self, gradient: torch.Tensor) -> None:
        """Add a gradient of this rank's own to what it has."""
        here = local(gradient)
        again = self.parts is not None and self.parts.shape == here.shape
        self.parts = self.parts + here if again and self.parts is not None else here.clone()


class Leaves:
    """All leaves of this rank, since the update that is judged began."""

    def __init__(self, rank: int, nudges: dict[Copy, tuple[str, float]]) -> None:
        self._rank, self._nudges = rank, nudges
        self._kept: list[torch.Tensor] = []  # an id must not come again
        self._busy = False
        self.nudging = True
        self.begin()

    def begin(self) -> None:
        """Forget all: an update is over, and the next begins."""
        self.entries: dict[str, Entry] = {}
        self.by_id: dict[int, Entry] = {}
        self._places = 0

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries.values())

    def nudge(self, name: str) -> tuple[str, float] | None:
        return self._nudges.get((self._rank, name)) if self.nudging else None

    def see(self, tensor: Any, name: str, owner: str) -> None:
        """Know a leaf from now on, and nudge it if the run says so."""
        self._kept.append(tensor)
        old = self.entries.get(name)
        if old is not None:
            gathered = hasattr(old.tensor, "placements") and old.tensor.shape == tensor.shape
            if gathered or is_flat(old.tensor):  # FSDP: the whole parameter
                self.by_id[id(tensor)] = old
                if tensor.requires_grad:
                    tensor.register_hook(_arrival(old))
                return
            name = f"{name}#{sum(one.split('#')[0] == name for one in self.entries)}"
        entry = Entry(name, tensor, owner)
        entry.begin(self.nudge(name))
        self.entries[name] = self.by_id[id(tensor)] = entry
        if tensor.requires_grad and tensor.is_leaf:
            tensor.register_hook(_arrival(entry))

    def see_module(self, module: torch.nn.Module) -> None:
        """Know all parameters of a module."""
        fresh = [one for one in module.parameters() if id(one) not in self.by_id]
        known = names() if fresh else {}
        for one in fresh:
            self.see(one, *known.get(id(one), (f"leaf{len(self.entries)}", "")))

    def begin_again(self) -> None:
        """Nudge leaves that were loaded or drawn since they were first seen."""
        for entry in self:
            if is_here(entry.tensor) and not is_flat(entry.tensor) and entry.has_changed:
                entry.begin(self.nudge(entry.name))

    def look(self, values: Iterable[Any], turns: Callable[[int], None]) -> None:
        """Know each leaf among the arguments of a call. ``turns``: is asked before, with an id."""
        if self._busy or not torch.is_grad_enabled():
            return
        for value in values:
            for tensor in value if isinstance(value, list | tuple) else (value,):
                if not isinstance(tensor, torch.Tensor) or not tensor.requires_grad:
                    continue
                if tensor.is_leaf:
                    turns(id(tensor))
                    self._use(tensor)

    def _use(self, tensor: torch.Tensor) -> None:
        if id(tensor) not in self.by_id:
            self._busy = True
            plain = "leaf" if type(tensor) is torch.Tensor else ""
            name, owner = names().get(id(tensor)) or (self.called(tensor), plain)
            self.see(tensor, name, owner)
            self._busy = False
        entry = self.by_id[id(tensor)]
        if entry.place is None:
            self._places += 1
            entry.place = self._places

    def called(self, tensor: torch.Tensor) -> str:
        """Return the name by which the script's code knows a tensor."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if "/torch/" not in file and "/workbench/auditing/" not in file:
                for name, value in frame.f_locals.items():
                    if value is tensor:
                        return name
            frame = frame.f_back
        return f"leaf{len(self.entries)}"


def _arrival(entry: Entry) -> Callable[[torch.Tensor], None]:
    return lambda gradient: entry.arrived(gradient)

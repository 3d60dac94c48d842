"""The parts of a checkpoint, by name: taken from what a rank trains, and put back.

A part is a module, an optimizer, a tensor, or an object with ``state_dict`` and
``load_state_dict``. Tensors are kept under the names that they have in the whole model, with the
rows that the rank holds: so that another number of ranks finds them, however it divides them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

import torch

from workbench.checkpoints.rows import Rows, local, rows_of
from workbench.common.errors import CheckpointError, short

Scope = Literal["equal", "divided", "per rank"]
"""Of a part: the same on all ranks, to the bit; rows, or names, of a whole; each rank's own."""
Named = tuple[str, torch.Tensor, Rows | None]


@dataclass
class Snapshot:
    """The state that a rank trains, at one moment."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    rows: dict[str, Rows | None] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)  # as JSON has them
    per_rank: list[str] = field(default_factory=list)  # parts that differ from rank to rank

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors."""
        return sum(one.numel() * one.element_size() for one in self.tensors.values())

    def copy(self) -> Snapshot:
        """Return it with tensors of its own, which training does not change."""
        tensors = {key: value.detach().clone() for key, value in self.tensors.items()}
        return replace(self, tensors=tensors)


class Readable(Protocol):
    """The methods by which parts read what was kept: ``Saved`` has them, for a checkpoint."""

    @property
    def manifest(self) -> Any: ...
    def all(self, name: str) -> list[Any]: ...
    def own_tensor(self, key: str) -> torch.Tensor | None: ...
    def tensor(self, key: str, rows: Rows | None = None) -> torch.Tensor: ...


class Part(Protocol):
    """One part of a checkpoint."""

    def tensors(self) -> Iterator[Named]:
        """Yield its tensors, as they stand now."""

    def values(self) -> Any:
        """Return what else it has, as JSON can hold it; None: nothing."""

    def put_back(self, name: str, saved: Readable) -> None:
        """Make it what was kept under ``name``. Raises CheckpointError."""


class _Kept(NamedTuple):
    name: str
    part: Part
    scope: Scope


class Parts:
    """The parts of one rank, in the order in which they were kept."""

    def __init__(self, *, equal: bool = False, writes: bool = True) -> None:
        """Begin without a part. ``equal``: all ranks train the same, to the bit, so one of them
        ``writes`` it.
        """
        self.equal, self.writes = equal, writes
        self._parts: list[_Kept] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    def keep(self, name: str, what: object, scope: Scope | None = None) -> None:
        """Keep ``what`` under a name; a second one of that name gets a number, unless they are
        shares of one whole. ``scope``: by default "equal" where all ranks train the same, else
        "per rank".

        Raises TypeError for what cannot be kept.
        """
        default: Scope = "equal" if self.equal else "per rank"
        number, unique = 1, name
        while scope != "divided" and any(unique == one.name for one in self._parts):
            number, unique = number + 1, f"{name} {number + 1}"
        self._parts.append(_Kept(unique, self._part(what), scope or default))

    def _part(self, what: Any) -> Part:
        if isinstance(what, torch.nn.Module):
            return _Module(what)
        if isinstance(what, torch.optim.Optimizer):
            return _Optimizer(what, self._names)
        if isinstance(what, torch.Tensor):
            return _Tensors(lambda: {"": (what, None)})
        if isinstance(what, _Tensors):
            return what
        if hasattr(what, "state_dict") and hasattr(what, "load_state_dict"):
            return _Stateful(what)
        raise TypeError(
            f"keep({short(what)}): a module, an optimizer, a tensor, or an object with "
            "state_dict() and load_state_dict()"
        )

    def _names(self) -> dict[int, tuple[str, Rows | None]]:
        """Return the names of all tensors that are kept, and their rows, by identity."""
        return {
            id(value): (f"{name}/{key}" if key else name, rows)
            for name, part, _ in self._parts
            if isinstance(part, _Module | _Tensors)
            for key, value, rows in part.tensors()
        }

    def check(self) -> None:
        """Raise CheckpointError where an optimizer updates a tensor that is not kept itself: it
        would be lost without a word.
        """
        names = self._names()
        for name, part, _ in self._parts:
            if isinstance(part, _Optimizer) and part.unknown(names):
                raise CheckpointError(
                    f"part {name!r} of the checkpoint updates tensors that no part holds: keep the "
                    'module that they are of, job.keep("model", module)'
                )

    def snapshot(self, *, everything: bool = False) -> Snapshot:
        """Return all parts as they stand now; their tensors are not copied. ``everything``: also
        what another rank writes.
        """
        snapshot = Snapshot(
            per_rank=[name for name, _, scope in self._parts if scope == "per rank"]
        )
        for name, part, scope in self._parts:
            if scope == "equal" and not (self.writes or everything):
                continue
            for key, value, rows in part.tensors():
                full = f"{name}/{key}" if key else name
                snapshot.tensors[full], snapshot.rows[full] = local(value), rows
            if (values := part.values()) is not None:
                snapshot.values.setdefault(name, []).append(values)
        return snapshot

    def buffers(self) -> dict[str, torch.Tensor]:
        """Return a copy of the buffers of all modules, which a forward may change."""
        return {
            f"{name}/{key}": value.detach().clone()
            for name, part, _ in self._parts
            if isinstance(part, _Module)
            for key, value in part.buffers()
        }

    def put_back(self, saved: Readable) -> None:
        """Make every part what it was. Raises CheckpointError."""
        for name, part, _ in self._parts:
            part.put_back(name, saved)


def tensors(get: Callable[[], Mapping[str, tuple[torch.Tensor, Rows | None]]]) -> _Tensors:
    """Return tensors as a part: by name, with the rows that they are of a whole one."""
    return _Tensors(get)


class _Tensors:
    def __init__(self, get: Callable[[], Mapping[str, tuple[torch.Tensor, Rows | None]]]) -> None:
        self._get = get

    def tensors(self) -> Iterator[Named]:
        for key, (value, rows) in self._get().items():
            yield key, value, rows

    def values(self) -> Any:
        return None

    def put_back(self, name: str, saved: Readable) -> None:
        for key, value, rows in self.tensors():
            _copy(value, f"{name}/{key}" if key else name, rows, saved)


class _Module:
    """Parameters and buffers, by their names in the model."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module

    def buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the buffers that belong to its state, by name."""
        buffers = {id(one) for one in self._module.buffers()}
        for key, value, _ in self.tensors():
            if id(value) in buffers:
                yield key, value

    def tensors(self) -> Iterator[Named]:
        for key, value in self._module.state_dict(keep_vars=True).items():
            if isinstance(value, torch.Tensor):
                yield key, value, rows_of(value)

    def values(self) -> Any:
        return None

    def put_back(self, name: str, saved: Readable) -> None:
        for key, value, rows in self.tensors():
            _copy(value, f"{name}/{key}", rows, saved)


class _Optimizer:
    """An optimizer's state by the names of its parameters, and its groups' values."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        names: Callable[[], dict[int, tuple[str, Rows | None]]],
    ) -> None:
        self._optimizer, self._names = optimizer, names

    def unknown(self, names: Mapping[int, object]) -> bool:
        """Return whether it has a parameter without a name."""
        groups = self._optimizer.param_groups
        return any(id(one) not in names for group in groups for one in group["params"])

    def _parameters(self) -> Iterator[tuple[str, Rows | None, torch.Tensor]]:
        names, number = self._names(), 0
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                name, rows = names.get(id(parameter), (str(number), None))
                yield name, rows, parameter
                number += 1

    def tensors(self) -> Iterator[Named]:
        for name, rows, parameter in self._parameters():
            for key, value in self._optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    yield f"{name}/{key}", value, rows if value.shape == parameter.shape else None

    def values(self) -> Any:
        return {
            "groups": [
                {key: value for key, value in group.items() if key != "params"}
                for group in self._optimizer.param_groups
            ],
            "state": {
                name: {
                    key: _kind(value, parameter)
                    for key, value in self._optimizer.state.get(parameter, {}).items()
                }
                for name, _, parameter in self._parameters()
            },
        }

    def put_back(self, name: str, saved: Readable) -> None:
        kept = saved.all(name)
        if not kept:
            raise CheckpointError(f"{saved.manifest.path} has no part {name!r}")
        state = {key: values for one in reversed(kept) for key, values in one["state"].items()}
        for key, rows, parameter in self._parameters():
            if key not in state:
                raise CheckpointError(
                    f"{saved.manifest.path} has nothing of {key!r} in {name!r}: it is of another "
                    "model or optimizer"
                )
            self._optimizer.state[parameter] = {
                item: self._item(f"{name}/{key}/{item}", value, rows, parameter, saved)
                for item, value in state[key].items()
            }
        for group, values in zip(self._optimizer.param_groups, kept[0]["groups"], strict=False):
            for item, value in values.items():
                before = group.get(item)
                group[item] = tuple(value) if isinstance(before, tuple) else value

    def _item(
        self,
        key: str,
        described: Mapping[str, Any],
        rows: Rows | None,
        parameter: torch.Tensor,
        saved: Readable,
    ) -> Any:
        """Return an entry of a parameter's state, on the device where it was."""
        if "value" in described:
            return described["value"]
        if described["tensor"] != "elementwise":
            return saved.tensor(key)
        zeros = torch.zeros_like(parameter, requires_grad=False)  # divided as the parameter is
        _copy(zeros, key, rows, saved)
        return zeros


def _kind(value: Any, parameter: torch.Tensor) -> dict[str, Any]:
    """Describe an entry of a parameter's state."""
    if isinstance(value, torch.Tensor):
        return {"tensor": "elementwise" if value.shape == parameter.shape else "of its own"}
    return {"value": value}


def _copy(value: torch.Tensor, key: str, rows: Rows | None, saved: Readable) -> None:
    """Copy what was kept into ``value``. Raises CheckpointError where the shapes differ."""
    target, saved_value = local(value), saved.tensor(key, rows)
    if saved_value.shape != target.shape:
        raise CheckpointError(
            f"{saved.manifest.path} has {key!r} of shape {tuple(saved_value.shape)}, the model "
            f"here has {tuple(target.shape)}: it is a checkpoint of another model"
        )
    target.copy_(saved_value)


class _Stateful:
    """An object with a ``state_dict``: nested dicts and lists of tensors and plain values."""

    def __init__(self, what: Any) -> None:
        self._what = what

    def tensors(self) -> Iterator[Named]:
        tensors: dict[str, torch.Tensor] = {}
        _plain(self._what.state_dict(), "", tensors)
        yield from ((key, value, None) for key, value in tensors.items())

    def values(self) -> Any:
        return _plain(self._what.state_dict(), "", {})

    def put_back(self, name: str, saved: Readable) -> None:
        kept = saved.all(name)
        if not kept:
            raise CheckpointError(f"{saved.manifest.path} has no part {name!r}")
        self._what.load_state_dict(_nested(kept[0], lambda key: _tensor(f"{name}/{key}", saved)))


def _tensor(key: str, saved: Readable) -> torch.Tensor:
    """Return a tensor of this rank's own, or the one that all share."""
    tensor = saved.own_tensor(key)
    return saved.tensor(key) if tensor is None else tensor


def _plain(value: Any, path: str, tensors: dict[str, torch.Tensor]) -> Any:
    """Return nested values as JSON can hold them; their tensors go to ``tensors``, by their path.

    Raises CheckpointError for a value that is neither.
    """
    match value:
        case torch.Tensor():
            tensors[path or "tensor"] = value
            return {"tensor": path or "tensor"}
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            items = [
                [_plain(key, path, {}), _plain(one, f"{path}/{key}".lstrip("/"), tensors)]
                for key, one in value.items()
            ]
            return {"dict": items}
        case list() | tuple():
            kind = "list" if isinstance(value, list) else "tuple"
            items = [
                _plain(one, f"{path}/{number}".lstrip("/"), tensors)
                for number, one in enumerate(value)
            ]
            return {kind: items}
    raise CheckpointError(
        f"{path or 'state_dict()'} = {short(value)} cannot be kept: a checkpoint holds tensors, "
        "numbers, texts, lists and dicts"
    )


def _nested(value: Any, tensor: Callable[[str], torch.Tensor]) -> Any:
    """Return what ``_plain`` made plain."""
    match value:
        case {"tensor": key}:
            return tensor(str(key))
        case {"dict": items}:
            return {_nested(key, tensor): _nested(one, tensor) for key, one in items}
        case {"list": items}:
            return [_nested(one, tensor) for one in items]
        case {"tuple": items}:
            return tuple(_nested(one, tensor) for one in items)
    return value

"""The layers of a model, by name: units that are gathered together, and all of them."""

from __future__ import annotations

from torch import nn

REST = "rest"  # the root's own: parameters that are in no layer
WHOLE = "model"  # the same where there are no layers


def units(model: nn.Module, by: str) -> list[tuple[str, nn.Module]]:
    """Return the layers in the order in which the model names them, without the root.

    ``by="whole"``: none, so that the root has all. ``"layers"``: the contents of the model's
    outermost containers (Sequential, ModuleList); of a model without containers its children. Only
    modules with parameters, their own or below them, that no other module shares.
    """
    if by == "whole":
        return []
    result = [(name, module) for name, module in _members(model, "") if _has_parameters(module)]
    if not result:
        result = [(name, one) for name, one in model.named_children() if _has_parameters(one)]
    return _unshared(model, result)


def layers(model: nn.Module) -> dict[nn.Module, str]:
    """Return the names of all modules in the model's outermost containers, with parameters or
    without, each once; of a model without containers of its children.
    """
    result: dict[nn.Module, str] = {}
    for name, module in _members(model, "") or model.named_children():
        result.setdefault(module, name)
    return result


def _members(module: nn.Module, name: str) -> list[tuple[str, nn.Module]]:
    """Yield names and modules in the outermost containers at or below ``module``."""
    prefix = f"{name}." if name else ""
    children = [(prefix + child_name, child) for child_name, child in module.named_children()]
    if isinstance(module, nn.Sequential | nn.ModuleList):
        # A container within a container of other containers is opened too.
        return [
            inner
            for own, child in children
            for inner in (
                _members(child, own) if isinstance(child, nn.ModuleList) else [(own, child)]
            )
        ]
    return [inner for own, child in children for inner in _members(child, own)]


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _unshared(model: nn.Module, layers: list[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    """Leave out layers whose parameters others use too: those stay with the root."""
    users: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        owner = next((layer for layer, _ in layers if name.startswith(f"{layer}.")), REST)
        users.setdefault(id(parameter), set()).add(owner)
    return [
        (name, module)
        for name, module in layers
        if all(users[id(one)] == {name} for one in module.parameters())
    ]

"""Layers that can be split, and models that cannot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from workbench.common.errors import SpecError
from workbench.training.splitting.layers import function_name
from workbench.training.splitting.traced import Traced
from workbench.training.tensor_parallel.layers import CONVOLUTIONS


def is_layer(module: nn.Module) -> bool:
    return isinstance(module, (nn.Linear, *CONVOLUTIONS))


def unfit(traced: Traced) -> Iterator[tuple[str, str]]:
    """Return the layers that are left whole, each with the reason."""
    model, nodes = traced.model, list(traced.graph.nodes)
    calls = [str(node.target) for node in nodes if node.op == "call_module"]
    read = {str(node.target) for node in nodes if node.op == "get_attr"}
    holders: dict[int, list[str]] = {}
    for name, value in model.named_parameters(remove_duplicate=False):
        holders.setdefault(id(value), []).append(name)
    for name, module in model.named_modules():
        if not is_layer(module):
            continue
        parameters = [(f"{name}.{each}", value) for each, value in module.named_parameters()]
        shared = [holders[id(value)] for _, value in parameters if len(holders[id(value)]) > 1]
        if shared:
            yield name, f"{' and '.join(shared[0])} are one parameter"
        elif calls.count(name) > 1:
            yield name, "it is called more than once"
        elif any(each in read for each, _ in parameters):
            yield name, "its parameters are also used by themselves"
        elif why := _special(module):
            yield name, why


def _special(module: Any) -> str:
    if type(module) not in (nn.Linear, *CONVOLUTIONS):
        return "of a class of its own"
    if module._forward_hooks or module._forward_pre_hooks:
        return "it has hooks"
    if isinstance(module, nn.Linear):
        return ""
    if module.groups != 1:
        return f"a convolution in {module.groups} groups"
    return "" if module.padding_mode == "zeros" else f"padded by {module.padding_mode}"


def refuse(traced: Traced) -> None:
    """Raise SpecError for a model that would behave differently when traced."""
    for node in traced.graph.nodes:
        name = function_name(node) if node.op == "call_function" else ""
        rate = node.kwargs.get("dropout_p" if name.startswith("scaled_dot") else "p")
        at = 4 if name.startswith("scaled_dot") else 1
        rate = node.args[at] if len(node.args) > at else rate
        if (name.endswith("dropout") and rate != 0) or (name.startswith("scaled_dot") and rate):
            raise SpecError(
                f"tensor parallelism: the model calls {name} as a function, which is "
                "traced as it is in training and would drop values in validation too: use the "
                "module nn.Dropout"
            )

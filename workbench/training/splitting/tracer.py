"""torch.fx's symbolic tracing, made to get through more models.

* A module inside whose code tracing stops is noted (``failed``): traced again, it stays whole.
* ``assert`` on sizes is passed over; the stages do not check it.
* ``torch.arange`` and other makers of tensors take sizes that are traced.
* ``nn.TransformerEncoder`` is its layers, not one.
* Arguments with a default are left at it, so ``if mask is None`` goes the right way.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import fx, nn

_MAKERS = ("arange", "zeros", "ones", "full", "empty", "eye", "linspace")


class Tracer(fx.Tracer):
    """Traces a model whose positional arguments are ``names``; modules in ``whole`` stay whole."""

    proxy_buffer_attributes = True  # mask[:, :t] with a size that is traced

    def __init__(self, names: tuple[str, ...], whole: Collection[str]) -> None:
        super().__init__()
        self.names, self.whole = names, whole
        self.failed: str | None = None  # the innermost module in whose forward tracing stopped

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> fx.Graph:
        makers = {name: getattr(torch, name) for name in _MAKERS}
        try:
            for name, make in makers.items():
                setattr(torch, name, _traced(make))
            return super().trace(root, concrete_args)
        finally:
            for name, make in makers.items():
                setattr(torch, name, make)

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        proxies = [self.create_proxy("placeholder", name, (), {}) for name in self.names]
        return root_fn, [self.root, *proxies]

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name in self.whole or super().is_leaf_module(
            m, module_qualified_name
        )

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if type(m) is nn.TransformerEncoder and len(args) == 1 and not kwargs:
            # Torch's own, whose code branches on kinds of masks: without one, this is all it does.
            for layer in m.layers:
                args = (layer(*args),)
            return args[0] if m.norm is None else m.norm(*args)
        path = self.path_of_module(m)
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception:
            if self.failed is None and not self.is_leaf_module(m, path):
                self.failed = path
            raise

    def to_bool(self, obj: fx.Proxy) -> bool:
        return True if _asserted(sys._getframe(2)) else super().to_bool(obj)


_LEAVES = ("RAISE_VARARGS", "RERAISE", "RETURN_VALUE", "RETURN_CONST")


def _traced(make: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``make``: if an argument is traced, record the call in the graph instead."""

    @functools.wraps(make)
    def maker(*args: Any, **kwargs: Any) -> Any:
        proxies = [a for a in (*args, *kwargs.values()) if isinstance(a, fx.Proxy)]
        if not proxies:
            return make(*args, **kwargs)
        return proxies[0].tracer.create_proxy("call_function", make, args, kwargs)

    return maker


def _asserted(frame: Any) -> bool:
    """Return whether the frame is at the test of an ``assert``, also one that pytest has rewritten.

    If it is false, AssertionError follows; pytest's statement builds its explanation first.
    """
    code = [i for i in dis.get_instructions(frame.f_code) if i.opname != "NOT_TAKEN"]
    place = next(n for n, i in enumerate(code) if i.offset >= frame.f_lasti)
    jump = next(
        (n for n in range(place, min(place + 4, len(code))) if "JUMP" in code[n].opname), None
    )
    if jump is None:
        return False
    false = code[jump + 1].offset if "IF_TRUE" in code[jump].opname else code[jump].argval
    start = next(n for n, i in enumerate(code) if i.offset >= false)
    end = next((n for n in range(start, len(code)) if code[n].opname in _LEAVES), None)
    if end is None or code[end].opname != "RAISE_VARARGS":
        return False
    way = code[start:end]
    stays = all(false <= i.argval <= code[end].offset for i in way if "JUMP" in i.opname)
    return stays and any(
        i.opname == "LOAD_ASSERTION_ERROR" or i.argval in ("AssertionError", AssertionError)
        for i in way
    )

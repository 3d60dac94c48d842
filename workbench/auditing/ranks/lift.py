"""float32 becomes float64 wherever a script names it: differences of losses need the digits."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_FROM_DATA = {"from_numpy", "as_tensor", "tensor", "frombuffer"}


class Lift(TorchFunctionMode):
    """Replaces the dtype in every call."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        single, double = torch.float32, torch.float64
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        args = tuple(double if one is single else one for one in args)
        kwargs = {name: double if one is single else one for name, one in (kwargs or {}).items()}
        result = func(*args, **kwargs)
        if (
            isinstance(result, torch.Tensor)
            and result.dtype is single
            and getattr(func, "__name__", "") in _FROM_DATA
        ):
            return result.double()
        return result


def lift() -> None:
    """Lift all that this process computes from now on."""
    torch.set_default_dtype(torch.float64)
    mode: Any = Lift()
    mode.__enter__()

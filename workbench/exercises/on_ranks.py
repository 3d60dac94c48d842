"""Functions of the reader's in plain ``torch.distributed``, called on real ranks, one by one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import polars as pl

from workbench.cells.team import ranks
from workbench.user_code.capture import write_out


def called(
    function: Callable[..., Any], size: int, call: str, timeout: str = "15 s", before: str = ""
) -> tuple[list[Any], pl.DataFrame]:
    """Return what ``call`` gives on each of ``size`` ranks, and the messages that were sent.

    ``call`` is an expression of ``f`` (the function), ``rank``, ``size``, ``torch`` and ``dist``,
    whose value JSON can hold; ``before`` are lines that run before it. Raises WorkbenchError where
    the function fails or never ends.
    """
    name, code = write_out(function)
    lines = [
        "import json, time",
        "import torch",
        "import torch.distributed as dist",
        code,
        f"f, size = {name}, world_size",
        before,
        f"print('value:' + json.dumps({call}))",
    ]
    team = ranks(size, timeout=timeout)
    try:
        result = team.execute("\n".join(lines)).check()
        values = [_value(result.output(rank)) for rank in range(size)]
        return values, team.events.filter(kind="send")
    finally:
        team.close()


def _value(printed: str) -> Any:
    line = next(one for one in printed.splitlines() if one.startswith("value:"))
    return json.loads(line.removeprefix("value:"))

"""Scripts of public bug reports, run as an attached job, and the record that they leave."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from types import MappingProxyType

import workbench as wb
from tests.processes import Ended, run
from workbench.runs.loaded import Loaded

ENGINE, OPERATIONS = "engine", "operations"
NOTHING: Mapping[str, str] = MappingProxyType({})
# What torch does with WORKBENCH_ATTACH when it is imported; here it has been imported already.
_ATTACH = "import torch.distributed.distributed_c10d as c10d, workbench._autoload as autoload"
HEAD = f"""
import datetime, os, time, torch, torch.distributed as dist
{_ATTACH}; autoload._attach(c10d, {{way!r}})
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
me, n = dist.get_rank(), dist.get_world_size()
"""
# Another process would end the job so; each rank does it to itself, at one time.
END_FROM_OUTSIDE = """
import signal, threading
def end():
    time.sleep({seconds})
    os.kill(os.getpid(), signal.SIGKILL)
threading.Thread(target=end, daemon=True).start()
"""


def attached(
    folder: Path, ranks: int, script: str, *, way: str = ENGINE, env: Mapping[str, str] = NOTHING
) -> list[Ended]:
    """Run the script on so many ranks, attached, recording, with the variables of ``env``; return
    how they ended.
    """
    text = HEAD.format(way=way) + dedent(script)
    return run(text, ranks, env={"WORKBENCH_TRACE": str(folder), **env}, backend="")


def record(
    folder: Path, ranks: int, script: str, *, way: str = ENGINE, fails: bool = False
) -> Loaded:
    """Run the script, which must end well unless it ``fails``; return its record."""
    ended = attached(folder, ranks, script, way=way)
    assert any(one.code for one in ended) == fails, [one.err[-3000:] for one in ended]
    return wb.load(folder)


def line_of(script: str, text: str) -> int:
    """Return the line of the script, as it runs, that has this text first."""
    lines = (HEAD + dedent(script)).splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)

"""``wb.audit``: is the update that a training script uses the one that is due?

    wb.audit("train.py", ranks=4)       a script, as torchrun would start it
    wb.audit(train, ranks=2)            a function: it makes the process group, or takes rank, size
    print(wb.audit("train.py"))         what is wrong, where, by which factor

See workbench/auditing/__init__.py for how.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

from workbench.auditing.report import Audit
from workbench.auditing.session import Session
from workbench.auditing.starting import CommandJob, LocalJob
from workbench.common.arguments import Count, Facts, Names, Ranks, Seed, TimeLimit, checked
from workbench.common.errors import SpecError
from workbench.common.progress_line import progress_line
from workbench.common.units import duration_ns
from workbench.user_code.source import capture

LIMIT = "10 min"
_CALL = """

if __name__ == "__main__":
    {name}()
"""
_CALL_WITH_RANK = """

if __name__ == "__main__":
    import os as _os
    import torch.distributed as _dist

    _dist.init_process_group(_os.environ.get("BACKEND", "gloo"))
    {name}(_dist.get_rank(), _dist.get_world_size())
    if _dist.is_initialized():
        _dist.destroy_process_group()
"""


@checked
def audit(
    script_or_function: str | os.PathLike[str] | Callable[..., Any],
    ranks: Ranks = 4,
    env: Facts = {},  # noqa: B006
    progress: bool = True,
    *,
    args: Names = (),
    update: Count = 1,
    seed: Seed = 0,
    lift: bool = True,
    timeout: TimeLimit = LIMIT,
) -> Audit:
    """Judge whether a training script's update is the one that is due; return an Audit.

    The script is not changed and needs no reference: it runs on ``ranks`` processes of this
    machine to the end of one update, several times, with parameters nudged and losses switched
    off. The update that is used is compared with the derivative of the losses, by differences.

    script_or_function   the path of a script that would run under torchrun; or a function, which
                         makes the process group itself, or takes ``rank`` and ``size``
    env         environment variables of the script; ``args`` are its arguments
    progress    a line in the terminal says what is being asked
    update      which update is judged; earlier ones run with the script's own optimizer
    seed        of the random directions
    lift        float32 becomes float64 wherever the script names it
    timeout     for all of it; the audit then abstains, with what it knows

    Raises SpecError for anything else than a script or a function.

    >>> print(wb.audit("train.py", ranks=2, progress=False))
    """
    show = progress_line(progress and sys.stderr.isatty(), "audit: ")
    with Session(update=update, seed=seed, lift=lift) as session:
        script = _script(script_or_function, session.folder)
        environment = {name: str(value) for name, value in env.items()}
        job = LocalJob(session.folder, script, args, ranks, environment)
        try:
            return session.judge(job, duration_ns(timeout) / 1e9, show)
        finally:
            job.close()
            show("")


def audit_command(words: Sequence[str], *, progress: bool, timeout: str = LIMIT) -> Audit:
    """Judge the job that a command starts, such as torchrun with a script; return an Audit."""
    show = progress_line(progress and sys.stderr.isatty(), "audit: ")
    with Session(update=1, seed=0, lift=True) as session:
        job = CommandJob(session.folder, words)
        try:
            return session.judge(job, duration_ns(timeout) / 1e9, show)
        finally:
            job.close()
            show("")


def _script(given: object, folder: Path) -> str:
    """Return the path of a script: the one given, or one that calls the function given."""
    if isinstance(given, str | os.PathLike):
        path = Path(given).expanduser()
        if not path.is_file():
            raise SpecError.at("script_or_function", "there is no such script here", given)
        return str(path.absolute())
    if not isinstance(given, FunctionType) or given.__name__ == "<lambda>":
        raise SpecError.at(
            "script_or_function",
            "must be the path of a script, or a function that you wrote with def",
            given,
        )
    source = capture(given)
    needed = [
        one
        for one in inspect.signature(given).parameters.values()
        if one.default is one.empty and one.kind is not one.VAR_KEYWORD
    ]
    if len(needed) not in (0, 2):
        raise SpecError(
            f"wb.audit: {source.name} must take no arguments, and make the process group itself, "
            "or take two: rank and size"
        )
    call = _CALL_WITH_RANK if needed else _CALL
    path = folder / f"{source.name}.py"
    path.write_text(source.code + call.format(name=source.name), encoding="utf-8")
    return str(path)

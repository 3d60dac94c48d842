"""Checks of the arguments of public functions. A wrong argument raises a SpecError.

It names the function, the value that it got, and what fits.

    @checked
    def why(operation: Text = "all_reduce", ranks: Walked = 4) -> Choice: ...

    why(ranks=None)     SpecError: wb.why: ranks = None: must be a whole number from 1 to 256

The annotation is the check: one of the types of kinds.py, ``bool``, a class, or one of these or
None. Other annotations are not looked at. Annotations are read when a function is first called, so
that an import does not pay for them.
"""

from workbench.common.arguments.boundary import checked
from workbench.common.arguments.checks import Check, Unfit, each, is_a
from workbench.common.arguments.kinds import (
    Algorithm,
    AtOnce,
    Bandwidth,
    Bytes,
    Count,
    Counts,
    Cuts,
    Dtypes,
    Duration,
    Elements,
    Factor,
    Facts,
    FromTo,
    Function,
    Itemsize,
    Job,
    Labels,
    Moments,
    Names,
    Number,
    Numbers,
    Place,
    Rank,
    Ranks,
    RanksOrOne,
    Real,
    RealRanks,
    Reals,
    Repeats,
    Seconds,
    Seed,
    Seeds,
    Size,
    Stages,
    Steps,
    TeamSize,
    Text,
    Theme,
    TimeLimit,
    Walked,
    a_function,
)

__all__ = [
    "Algorithm",
    "AtOnce",
    "Bandwidth",
    "Bytes",
    "Check",
    "Count",
    "Counts",
    "Cuts",
    "Dtypes",
    "Duration",
    "Elements",
    "Factor",
    "Facts",
    "FromTo",
    "Function",
    "Itemsize",
    "Job",
    "Labels",
    "Moments",
    "Names",
    "Number",
    "Numbers",
    "Place",
    "Rank",
    "Ranks",
    "RanksOrOne",
    "Real",
    "RealRanks",
    "Reals",
    "Repeats",
    "Seconds",
    "Seed",
    "Seeds",
    "Size",
    "Stages",
    "Steps",
    "TeamSize",
    "Text",
    "Theme",
    "TimeLimit",
    "Unfit",
    "Walked",
    "a_function",
    "checked",
    "each",
    "is_a",
]

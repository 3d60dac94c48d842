"""``wb.why``: what "auto" takes on this machine, and why."""

from __future__ import annotations

from workbench.choosing import choose
from workbench.choosing.choose import Choice
from workbench.choosing.costs import Costs, links_of, load
from workbench.common.arguments import Bytes, Text, Walked, checked
from workbench.common.errors import SpecError
from workbench.common.units import size_bytes
from workbench.experiment.checks import check_levels
from workbench.experiment.spec import Network


@checked
def why(
    operation: Text = "all_reduce",
    nbytes: Bytes = "1 MiB",
    ranks: Walked = 4,
    network: Network | None = None,
) -> Choice:
    """Return the choice of "auto" for an operation, with each algorithm's predicted seconds.

    ``ranks``: their number; ``nbytes``: such as "64 KiB"; ``network``: emulated links, as in an
    Experiment. ``print`` the result. It uses the costs of ``wb.calibrate()`` where this user has
    measured them. Raises SpecError.

    >>> print(wb.why("all_reduce", nbytes="64 KiB", ranks=4))
    """
    return choose.why(operation, ranks, size_of(nbytes), costs_over(network, ranks))


def costs_over(network: Network | None, ranks: int) -> Costs:
    """Return this machine's costs with these links. Raises SpecError if hosts do not fit."""
    costs = load()
    if network is None:
        return costs
    check_levels(network, ranks)
    return costs.over(links_of(network, ranks))


def size_of(nbytes: int | str) -> int:
    """Return the bytes of a number or of a text such as "64 KiB". Raises SpecError."""
    if isinstance(nbytes, str):
        return size_bytes(nbytes)
    if isinstance(nbytes, bool) or not isinstance(nbytes, int) or nbytes < 0:
        raise SpecError(f"{nbytes!r} is not a size: write bytes, or '64 KiB'")
    return nbytes

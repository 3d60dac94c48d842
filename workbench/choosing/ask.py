"""``wb.why``: what "auto" takes on this machine, and why."""

from __future__ import annotations

from workbench.choosing import choose
from workbench.choosing.choose import Choice
from workbench.choosing.costs import Costs, links_of, load
from workbench.errors import SpecError
from workbench.spec import Network
from workbench.spec_checks import check_levels
from workbench.units import size_bytes


def why(
    operation: str = "all_reduce", nbytes: int | str = "1 MiB", ranks: int = 4,
    network: Network | None = None,
) -> Choice:  # fmt: skip
    """What "auto" takes for an operation of ``nbytes`` (such as "64 KiB") on so many ranks, with
    each algorithm's predicted seconds; ``network``: emulated links, as an Experiment has them.

    ``print`` it. It goes by ``wb.calibrate()``'s costs where this user has measured them. Raises
    SpecError.
    """
    if not isinstance(ranks, int) or ranks < 1:
        raise SpecError(f"ranks = {ranks!r}: a number of processes, 1 or more")
    return choose.why(operation, ranks, size_of(nbytes), costs_over(network, ranks))


def costs_over(network: Network | None, ranks: int) -> Costs:
    """This machine's costs, with these links. Raises SpecError for hosts of other ranks."""
    costs = load()
    if network is None:
        return costs
    check_levels(network, ranks)
    return costs.over(links_of(network, ranks))


def size_of(nbytes: int | str) -> int:
    """Bytes, of a number of them or of "64 KiB". Raises SpecError."""
    if isinstance(nbytes, str):
        return size_bytes(nbytes)
    if isinstance(nbytes, bool) or not isinstance(nbytes, int) or nbytes < 0:
        raise SpecError(f"{nbytes!r} is not a size: write bytes, or '64 KiB'")
    return nbytes

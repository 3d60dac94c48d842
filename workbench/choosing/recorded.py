"""The choices of "auto" in a run, stored in its metadata."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from workbench.choosing.choose import choose, in_words, powers, ranges
from workbench.choosing.costs import Costs
from workbench.experiment.spec import Experiment

if TYPE_CHECKING:
    from workbench.store.event_store import Store


def record_choice(exp: Experiment, costs: Costs, wanted: Callable[[], Store | None]) -> None:
    """Write the choices of "auto" into the store's metadata: the ranks compute theirs themselves.

    ``wanted`` gives the run's store. For many ranks this takes many seconds; it is given up once
    the run is dropped.
    """
    costs = costs.cut_into(exp.chunk_bytes)
    for nbytes in powers():
        if wanted() is None:
            return
        choose("all_reduce", exp.ranks, nbytes, costs)
    words = in_words(ranges("all_reduce", exp.ranks, costs))
    if (store := wanted()) is not None:
        store.metadata["auto"] = json.dumps(words)

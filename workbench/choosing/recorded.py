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


def record_choice(exp: Experiment, costs: Costs, find_store: Callable[[], Store | None]) -> None:
    """Write the choices of "auto" into the store's metadata: the ranks compute theirs themselves.

    ``find_store`` returns the run's store, and None once the run is dropped: then this stops, which
    takes many seconds for many ranks.
    """
    costs = costs.cut_into(exp.chunk_bytes)
    for nbytes in powers():
        if find_store() is None:
            return
        choose("all_reduce", exp.ranks, nbytes, costs)
    words = in_words(ranges("all_reduce", exp.ranks, costs))
    if (store := find_store()) is not None:
        store.metadata["auto"] = json.dumps(words)

"""The findings of a study of the checkpoint interval in sentences, from its table."""

from __future__ import annotations

import polars as pl

from workbench.common.units import counted
from workbench.studies.interval.table import Costs, best_of

NEAR = 2.0  # times: the cost is flat around its optimum


def sentences(table: pl.DataFrame, costs: Costs | None) -> list[str]:
    """Describe the costs, what theory advises, and what was measured."""
    if costs is None or not table.height:
        return []
    lines = [_costs(costs), _advice(costs), _outcome(table, costs)]
    if not table["failures"].sum():
        lines.append(
            "No failure was drawn, so there is nothing to weigh checkpoints against: take more "
            "iterations, more seeds, or a shorter mtbf."
        )
    elif not table["every"].min() <= costs.young <= table["every"].max():  # type: ignore[operator]
        lines.append("Young's interval is outside of those swept: sweep around it.")
    return lines


def _costs(costs: Costs) -> str:
    parts = [
        f"An iteration takes {_time(costs.iteration)}, a checkpoint {_time(costs.checkpoint)} of "
        "training's time"
    ]
    if costs.restart:
        parts.append(f"a recovery {_time(costs.restart)}")
    return f"{', '.join(parts)}; a rank fails every {_time(costs.mtbf)} on average."


def _advice(costs: Costs) -> str:
    seconds = costs.young * costs.iteration
    return (
        f"Young: a checkpoint every {_time(seconds)} of training, {costs.young:.3g} iterations; "
        f"Daly: every {_time(costs.daly * costs.iteration)}, {costs.daly:.3g} iterations."
    )


def _outcome(table: pl.DataFrame, costs: Costs) -> str:
    best = best_of(table)
    assert best is not None
    row = table.row(by_predicate=pl.col("every") == best, named=True)
    apart = max(best / costs.young, costs.young / best)
    against = (
        f"within a factor of {NEAR:g} of" if apart <= NEAR else f"a factor of {apart:.1f} from"
    )
    parts = {"checkpoints": "checkpoint_s", "lost work": "lost_s", "recovery": "recovery_s"}
    shares = ", ".join(
        f"{row[column] / row['seconds']:.0%} {what}" for what, column in parts.items()
    )
    return (
        f"Measured best: every {counted(best, 'iteration')}, {_time(row['seconds'])} for each "
        f"useful iteration ({shares}); {against} Young's."
    )


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"

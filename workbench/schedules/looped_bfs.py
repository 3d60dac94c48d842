"""Looped BFS: GPipe with several stages a rank, all microbatches of a stage before the next stage.

Paper  Lamy-Poirier, "Breadth-First Pipeline Parallelism", MLSys 2023. arXiv 2211.05953. Grid:
       torch's ScheduleLoopedBFS.
Cost   idle / ideal time (K-1) / (v·M) for M >= K: the pipeline fills v times faster than GPipe's.
Peak   M microbatches at every stage.
Walk   K=2, M=2, v=2; stages 0 and 2 on rank 0, 1 and 3 on rank 1. torch goes back through the
       microbatches from the last to the first:

           rank 0  0F0 0F1 2F0 2F1  .   .  2B1 2B0 0B1 0B0
           rank 1   .  1F0 1F1 3F0 3F1 3B1 3B0 1B1 1B0  .
"""

from __future__ import annotations

from workbench.schedules._torch import grid
from workbench.training.pipelines.formulas import Formula, fill_and_drain
from workbench.training.pipelines.schedule import Action

FORMULA = Formula(
    "(K−1)(F+I+W)",
    fill_and_drain,
    "v·M",
    lambda c, rank: c.v * c.M,
    holds=lambda c: c.M >= c.K,
)


def schedule(ranks: int, microbatches: int, stages_per_rank: int) -> list[list[Action]]:
    if stages_per_rank < 2:
        raise ValueError("looped_bfs needs stages_per_rank of 2 or more; for 1 take 'gpipe'")
    return grid("ScheduleLoopedBFS", ranks, microbatches, stages_per_rank)

"""Interleaved zero bubble: several stages a rank, and the backward in two, as torch makes the grid.

Paper  Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024. arXiv 2401.10241; stages a rank as
       in Megatron-LM (arXiv 2104.04473). Grid: torch's ScheduleInterleavedZeroBubble.
Cost   idle (K-1)(F+I-W) a rank in times of a thin stage: a third of interleaved 1F1B's when all
       three last alike.
Peak   v·K stages' microbatches on every rank, until their W is done.
Walk   K=2, M=2, v=2; stages 0 and 2 on rank 0, 1 and 3 on rank 1:

           rank 0  0F0 0F1 2F0 2F1  .  2I0 2W0 2I1 2W1 0I0 0W0 0I1 0W1
           rank 1   .  1F0 1F1 3F0 3I0 3F1 3I1 3W0 1I0 3W1 1I1 1W0 1W1
"""

from __future__ import annotations

from workbench.schedules._torch import grid
from workbench.training.pipelines.formulas import Formula
from workbench.training.pipelines.schedule import Action

FORMULA = Formula(
    "(K−1)(F+I−W)",
    lambda c: (c.K - 1) * (c.f + c.i - c.w),
    "v·K",
    lambda c, rank: c.v * c.K,
    holds=lambda c: c.M >= 2 * c.K and c.w <= min(c.f, c.i),
    peak_holds=lambda c: c.M >= 2 * c.K,
)


def schedule(ranks: int, microbatches: int, stages_per_rank: int) -> list[list[Action]]:
    if stages_per_rank < 2:
        raise ValueError("interleaved_zero_bubble needs stages_per_rank of 2 or more; or 'zb_h1'")
    return grid("ScheduleInterleavedZeroBubble", ranks, microbatches, stages_per_rank)

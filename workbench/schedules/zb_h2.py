"""ZB-H2: twice the forwards ahead, and no rank idles between its first and its last action.

Paper  Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024. arXiv 2401.10241
Idea   The time until the first gradient comes back is filled with more forwards, the time after the
       last one with weight gradients: the trapezoid of 1F1B becomes a parallelogram.
Cost   idle (K-1)(F+I-2W) a rank: none when all three last alike (and M >= 2K-1). The ranks still
       begin and end after one another, so the whole takes as long as with ZB-H1.
Peak   min(M, 2K-1) microbatches at every stage: twice the memory.
Walk   K=2, M=4. Stage d is 2(K-d)-1 forwards ahead and lets its W lag 2d microbatches behind:

           rank 0  0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3  .
           rank 1   .  1F0 1I0 1F1 1I1 1F2 1I2 1W0 1F3 1I3 1W1 1W2 1W3
"""

from __future__ import annotations

from workbench.schedules.zb_h1 import split_row
from workbench.training.pipelines.formulas import Formula
from workbench.training.pipelines.schedule import Action, one_stage_a_rank

FORMULA = Formula(
    "(K−1)·max(F, F+I−2W)",
    lambda c: (c.K - 1) * max(c.f, c.f + c.i - 2 * c.w),
    "min(M, 2K−1)",
    lambda c, rank: min(c.M, 2 * c.K - 1),
    span=lambda c: (c.K - 1) * max(0.0, c.f + c.i - 2 * c.w),
    holds=lambda c: c.M >= 2 * c.K - 1 and c.w <= min(c.f, c.i),
)


def schedule(ranks: int, microbatches: int, stages_per_rank: int) -> list[list[Action]]:
    one_stage_a_rank("zb_h2", stages_per_rank, "interleaved_zero_bubble")
    return [
        split_row(stage, 2 * (ranks - stage) - 1, 2 * stage, microbatches) for stage in range(ranks)
    ]

"""ZBV: two stages a rank in the shape of a V, and the backward in two. No bubble in 1F1B's memory.

Paper  Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS 2024. arXiv 2405.15362;
       and arXiv 2401.10241. Grid: torch's ScheduleZBVZeroBubble.
Idea   The stages go down to the last rank and fold back, so rank r has stages r and 2K-1-r. The
       last stage is on rank 0: its gradients come back at once, and short.
Cost   no idle time inside a rank when F, I and W last alike and M is large enough; every microbatch
       crosses each cut twice: twice the messages.
Peak   2K halves of a rank's layers: 1F1B's most.
Walk   K=2, M=3, v=2; stages 0 and 3 on rank 0, 1 and 2 on rank 1:

           rank 0  0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2  .
           rank 1   .  1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2
"""

from __future__ import annotations

from workbench.schedules._torch import grid, two_stages_a_rank
from workbench.training.pipelines.formulas import Formula
from workbench.training.pipelines.schedule import Action

FORMULA = Formula(
    "(K−1)·F",
    lambda c: (c.K - 1) * c.f,
    "2K",
    lambda c, rank: 2 * c.K,
    span=lambda c: 0.0,
    holds=lambda c: c.M >= 2 * c.K and c.f == c.i == c.w,
    peak_holds=lambda c: c.M >= 2 * c.K,
)


def schedule(ranks: int, microbatches: int, stages_per_rank: int) -> list[list[Action]]:
    two_stages_a_rank("zbv", stages_per_rank)
    return grid("ScheduleZBVZeroBubble", ranks, microbatches, stages_per_rank)

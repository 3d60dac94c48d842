"""DualPipeV: ZBV's V, with the forward of one microbatch beside the backward of another.

Paper  DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, arXiv 2412.19437 (DualPipe), cut in half
       by Sea AI Lab. Grid: torch's ScheduleDualPipeV.
Idea   Pairs of a forward and a backward hide one another's messages. Here both are done one after
       the other, the forward first: what overlaps is the messages.
Cost   idle (K-1)(F+I-W) a rank in times of a thin stage, where W <= F, F-W <= I <= F·K/(K-1); M
       must be at least the stages' number, 2K.
Peak   2K + 1 stages' microbatches on every rank: half a rank's layers more than ZBV.
Walk   K=2, M=4, v=2; stages 0 and 3 on rank 0, 1 and 2 on rank 1:

           rank 0  0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 0I3 0W3
           rank 1   .  1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2I3 1I3 2W3 1W3
"""

from __future__ import annotations

from workbench.schedules._torch import grid, two_stages_a_rank
from workbench.training.pipelines.formulas import Formula
from workbench.training.pipelines.schedule import Action

FORMULA = Formula(
    "(K−1)(F+I−W)",
    lambda c: (c.K - 1) * (c.f + c.i - c.w),
    "2K+1",
    lambda c, rank: 2 * c.K + 1,
    # Measured on the grid: a longer I holds up the forwards beside it, in each of K - 1 turns.
    holds=lambda c: (
        c.M >= 2 * c.K
        and c.w <= min(c.f, c.i)
        and c.f - c.w <= c.i
        and (c.K - 1) * (c.i - c.f) <= c.f
    ),
    peak_holds=lambda c: c.M >= 2 * c.K,
)


def schedule(ranks: int, microbatches: int, stages_per_rank: int) -> list[list[Action]]:
    two_stages_a_rank("dualpipe_v", stages_per_rank)
    return grid("ScheduleDualPipeV", ranks, microbatches, stages_per_rank)

"""ZB-H1: the backward in two, and the weight gradients moved into the bubble, in 1F1B's memory.

Paper  Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024. arXiv 2401.10241
Idea   The stage before waits for the gradient of the *input* (I) only. That of the weights (W) can
       be done at any later time: where the rank would idle while the pipeline drains.
Cost   idle (K-1)(F+I-W) a rank: a third of 1F1B's when all three last alike.
Peak   min(M, K) microbatches at every stage, until their W is done: 1F1B's most, on all ranks.
Walk   K=3, M=4. Stage d lets its W lag d microbatches behind; the last lags K-1:

           rank 0  0F0 0F1 0F2  .   .  0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3
           rank 1   .  1F0 1F1  .  1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3
           rank 2   .   .  2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3
"""

from __future__ import annotations

from workbench.training.pipelines.formulas import Formula
from workbench.training.pipelines.schedule import Action, one_stage_a_rank

FORMULA = Formula(
    "(K−1)(F+I−W)",
    lambda c: (c.K - 1) * (c.f + c.i - c.w),
    "min(M, K)",
    lambda c, rank: min(c.M, c.K),
    holds=lambda c: c.M >= c.K and c.w <= c.f,
)


def schedule(ranks: int, microbatches: int, stages_per_rank: int) -> list[list[Action]]:
    one_stage_a_rank("zb_h1", stages_per_rank, "interleaved_zero_bubble")
    return [split_row(stage, ranks - stage, stage, microbatches) for stage in range(ranks)]


def split_row(stage: int, ahead: int, lag: int, microbatches: int) -> list[Action]:
    """Return ``ahead`` forwards; then I, the W of ``lag`` microbatches before, and F, in turn."""
    row = [Action(stage, "F", m) for m in range(min(ahead, microbatches))]
    for m in range(microbatches):
        row.append(Action(stage, "I", m))
        if m >= lag:
            row.append(Action(stage, "W", m - lag))
        if m + ahead < microbatches:
            row.append(Action(stage, "F", m + ahead))
    left = range(max(0, microbatches - lag), microbatches)
    return [*row, *(Action(stage, "W", m) for m in left)]

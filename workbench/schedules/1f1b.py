"""1F1B: a rank fills the pipeline behind it, then does one forward, one backward, in turn.

Paper  Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training" (PipeDream-Flush),
       ICML 2021. arXiv 2006.09503
Cost   bubble (K-1) / (M+K-1), as GPipe's; makespan (M+K-1)·(F+B), B the whole backward.
Peak   min(M, K-d) microbatches at stage d: no longer all M, and that is its whole point.
Walk   K=3, M=4, a backward as long as a forward:

           rank 0  0F0 0F1 0F2  .   .  0B0 0F3 0B1  .  0B2  .  0B3
           rank 1   .  1F0 1F1  .  1B0 1F2 1B1 1F3 1B2  .  1B3  .
           rank 2   .   .  2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3  .   .
"""

from __future__ import annotations

from workbench.training.pipelines.formulas import Formula, fill_and_drain
from workbench.training.pipelines.schedule import Action, one_stage_a_rank

FORMULA = Formula(
    "(K−1)(F+I+W)", fill_and_drain, "min(M, K−d)", lambda c, rank: min(c.M, c.K - rank)
)


def schedule(ranks: int, microbatches: int, stages_per_rank: int) -> list[list[Action]]:
    one_stage_a_rank("1f1b", stages_per_rank, "interleaved_1f1b")
    return [_row(stage, min(microbatches, ranks - stage), microbatches) for stage in range(ranks)]


def _row(stage: int, ahead: int, microbatches: int) -> list[Action]:
    """Return ``ahead`` forwards; then every forward has a backward before the next one."""
    row = [Action(stage, "F", m) for m in range(ahead)]
    for m in range(microbatches):
        row.append(Action(stage, "B", m))
        if m + ahead < microbatches:
            row.append(Action(stage, "F", m + ahead))
    return row

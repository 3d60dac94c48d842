"""GPipe: all forwards, then all backwards.

Paper  Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline
       Parallelism", NeurIPS 2019. arXiv 1811.06965
Cost   bubble (K-1) / (M+K-1): K-1 of the M+K-1 slots of a rank are spent filling and draining.
Peak   M microbatches at every stage: the activations of all wait for their backwards.
Walk   K=3, M=4, a backward as long as a forward:

           rank 0  0F0 0F1 0F2 0F3  .   .   .   .  0B0 0B1 0B2 0B3
           rank 1   .  1F0 1F1 1F2 1F3  .   .  1B0 1B1 1B2 1B3  .
           rank 2   .   .  2F0 2F1 2F2 2F3 2B0 2B1 2B2 2B3  .   .
"""

from __future__ import annotations

from workbench.training.pipelines.formulas import Formula, fill_and_drain
from workbench.training.pipelines.schedule import Action, one_stage_a_rank

FORMULA = Formula("(K−1)(F+I+W)", fill_and_drain, "M", lambda c, rank: c.M)


def schedule(ranks: int, microbatches: int, stages_per_rank: int) -> list[list[Action]]:
    one_stage_a_rank("gpipe", stages_per_rank, "looped_bfs")
    return [
        [Action(stage, kind, m) for kind in "FB" for m in range(microbatches)]
        for stage in range(ranks)
    ]

"""Sequential split: one microbatch at a time goes through all stages and back.

Idea   The model is split because it fits no single rank; nothing is overlapped ("naive model
       parallelism", the baseline of the GPipe paper, arXiv 1811.06965).
Cost   bubble 1 - 1/K: at any moment one rank of K computes.
Peak   1 microbatch at every stage.
Walk   K=3, M=2:

           rank 0  0F0  .   .   .   .  0B0 0F1  .   .   .   .  0B1
           rank 1   .  1F0  .   .  1B0  .   .  1F1  .   .  1B1  .
           rank 2   .   .  2F0 2B0  .   .   .   .  2F1 2B1  .   .
"""

from __future__ import annotations

from workbench.training.pipelines.formulas import Formula
from workbench.training.pipelines.schedule import Action

FORMULA = Formula("(K−1)·v·M·(F+I+W)", lambda c: (c.K - 1) * c.busy, "v", lambda c, rank: c.v)


def schedule(ranks: int, microbatches: int, stages_per_rank: int) -> list[list[Action]]:
    rows = []
    for rank in range(ranks):
        stages = [rank + chunk * ranks for chunk in range(stages_per_rank)]
        row = []
        for m in range(microbatches):
            row += [Action(stage, "F", m) for stage in stages]
            row += [Action(stage, "B", m) for stage in reversed(stages)]
        rows.append(row)
    return rows

"""PipeDream: 1F1B that never drains. Each stage updates by itself and stashes old weights.

Paper  Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019.
       doi:10.1145/3341301.3359646
Idea   A flush empties the pipeline before each update so that all stages agree on the weights.
       Without it a stage goes on with the next iteration at once. The backward of a microbatch uses
       the very weights that its forward used: a stage keeps each version until no microbatch in
       flight needs it.
Cost   bubble (K-1) / (N+K-1) over the N microbatches of the whole run: nothing in the long run.
Peak   min(N, K-d) microbatches at stage d, and as many versions of the weights at most.
Price  Gradients are taken on weights up to K-1-d updates old: not the trajectory of one process.
Walk   K=3, M=6, an update after every 2 backwards of a stage. 0F4 and 1F4 come after 0B1 and 1B1,
       so on weights of 1 update, while 2F4 sees 2 of them:

           rank 0  0F0 0F1 0F2  .   .  0B0 0F3 0B1 0F4 0B2 0F5 0B3  .  0B4  .  0B5
           rank 1   .  1F0 1F1  .  1B0 1F2 1B1 1F3 1B2 1F4 1B3 1F5 1B4  .  1B5  .
           rank 2   .   .  2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3 2F4 2B4 2F5 2B5  .   .
"""

from __future__ import annotations

from workbench.training.pipelines.formulas import Formula, fill_and_drain
from workbench.training.pipelines.schedule import Action, one_stage_a_rank
from workbench.user_code import source

FORMULA = Formula(
    "(K−1)(F+I+W)", fill_and_drain, "min(M, K−d)", lambda c, rank: min(c.M, c.K - rank)
)


def schedule(
    ranks: int, microbatches: int, stages_per_rank: int, flush: bool = False
) -> list[list[Action]]:
    """Return the rows; ``microbatches`` counts those of all iterations, as there is no flush."""
    one_stage_a_rank("pipedream", stages_per_rank, "interleaved_1f1b")
    rows: list[list[Action]] = source.load("schedules", "1f1b", "schedule")(ranks, microbatches, 1)
    return rows

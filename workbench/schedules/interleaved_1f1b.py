"""Interleaved 1F1B: v thin stages a rank instead of a thick one, so the pipeline fills v times
faster.

Paper  Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
       Megatron-LM", SC 2021. arXiv 2104.04473
Cost   idle / ideal time (K-1) / (v·M): the bubble shrinks by v, messages grow by v. M must be a
       multiple of K.
Peak   2(K-d-1) + (v-1)K + 1 stages' microbatches on rank d, but never more than v·M.
Walk   K=2, v=2, M=2; stages 0 and 2 on rank 0, 1 and 3 on rank 1. Microbatches come in groups of K,
       each group through all stages of a rank before the next group:

           rank 0  0F0 0F1 2F0 2F1  .  2B0  .  2B1 0B0 0B1
           rank 1   .  1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1  .
"""

from __future__ import annotations

from workbench.training.pipelines.formulas import Formula, fill_and_drain
from workbench.training.pipelines.schedule import Action

FORMULA = Formula(
    "(K−1)(F+I+W)",
    fill_and_drain,
    "min(v·M, 2(K−d−1)+(v−1)K+1)",
    lambda c, rank: min(c.v * c.M, 2 * (c.K - rank - 1) + (c.v - 1) * c.K + 1),
)


def schedule(ranks: int, microbatches: int, stages_per_rank: int) -> list[list[Action]]:
    K, v, M = ranks, stages_per_rank, microbatches
    if v < 2:
        raise ValueError("interleaved_1f1b needs stages_per_rank of 2 or more; for 1 take '1f1b'")
    if M % K:
        raise ValueError(
            f"interleaved_1f1b: microbatches = {M} must be a multiple of ranks = {K}, as groups of "
            "so many go through a rank's stages in turn"
        )

    def forward(rank: int, k: int) -> Action:
        """Return the k-th forward of a rank: groups of K microbatches, chunk after chunk."""
        group, within = divmod(k, K * v)
        return Action(within // K * K + rank, "F", group * K + within % K)

    def backward(rank: int, k: int) -> Action:
        """Return the k-th backward of a rank: like the forwards, but the last chunk first."""
        stage, _, m = forward(rank, k)
        return Action((v - 1 - stage // K) * K + rank, "B", m)

    rows = []
    for rank in range(K):
        ahead = min(2 * (K - rank - 1) + (v - 1) * K, v * M)
        row = [forward(rank, k) for k in range(ahead)]
        for k in range(v * M):
            if k + ahead < v * M:
                row.append(forward(rank, k + ahead))
            row.append(backward(rank, k))
        rows.append(row)
    return rows

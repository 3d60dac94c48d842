"""Functions of torch.distributed by the names that they have had since torch 2.13: before, they had
others.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

_dist: Any = dist
all_gather_single: Any = getattr(dist, "all_gather_single", None) or _dist.all_gather_into_tensor
reduce_scatter_single: Any = (
    getattr(dist, "reduce_scatter_single", None) or _dist.reduce_scatter_tensor
)

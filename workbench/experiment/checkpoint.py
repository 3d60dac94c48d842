"""The part of an Experiment that says where checkpoints are written, and how often."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from workbench.experiment.frozen_model import Count, FrozenModel, Int

Folder = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=r"^[^\x00]+$")]


class Checkpoint(FrozenModel):
    """Checkpoints of a run: all that it needs to go on as if it had never been interrupted."""

    folder: Folder = Field(description="where they are written; made if it is not there")
    every: Int = Field(
        default=100,
        ge=0,
        description="iterations between two; 0: only where run.checkpoint() asks for one",
    )
    keep: Count = Field(default=2, description="newest ones that are kept; older ones are removed")
    background: bool = Field(
        default=True,
        description="write beside training, which waits for the copy only; False: it waits for the "
        "disk",
    )

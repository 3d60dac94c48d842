"""The mesh that a checkpoint is of: another one divides the model otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.common.errors import CheckpointError


class Layout:
    """A part of a checkpoint that refuses another mesh."""

    def __init__(self, *fields: object) -> None:
        """Take what decides which rank holds what; the first field is the mesh."""
        self._fields = [str(one) for one in fields]

    def state_dict(self) -> dict[str, Any]:
        return {"layout": self._fields}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raise CheckpointError where the checkpoint is of another mesh."""
        if (saved := [*state["layout"]]) != self._fields:
            raise CheckpointError(
                f"the checkpoint is of mesh {saved[0]!r} with other divisions than "
                f"{self._fields[0]!r} has ({', '.join(saved[1:])} there, "
                f"{', '.join(self._fields[1:])} here): resume it on the mesh that it is of"
            )

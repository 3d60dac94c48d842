"""Model: how its layers are cut, and where their parts are. Its still picture is of layers that are
cut themselves; a model that is cut between layers has the scene of its pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.front_end.svg import text
from workbench.views.stills import svg_tensor_parallel
from workbench.views.stills.svg import title_lines
from workbench.views.stills.svg_tensor_parallel import Cut

ON_REQUEST = WIDE = True


def select(rows: object, facts: Mapping[str, Any]) -> Cut | None:
    """Return the parts of each layer; None: no layer is cut."""
    return svg_tensor_parallel.select(facts.get("model") or {})


def draw(selected: Cut) -> list[str]:
    """Return a row for each layer, with a box for each rank."""
    title = title_lines("Which rank has which part of which layer", "")[0]
    below = text(16, 74, svg_tensor_parallel.words(selected), "ink-3", size=11, most=130)
    return [title, below, *svg_tensor_parallel.marks(selected)]

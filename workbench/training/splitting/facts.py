"""The facts from which a page draws a split model: run.model, plain numbers."""

from __future__ import annotations

from typing import Any

from workbench.training.splitting.cut import Cut
from workbench.training.splitting.profiled import Profile


def model_facts(profile: Profile, cut: Cut) -> dict[str, Any]:
    """Return layers, values and boundaries; bytes and milliseconds of one microbatch.

    edges  [layer that makes a value, layer that uses it, bytes]; -1: the model's own argument
    cut    by boundary: the layer before it, and the values that cross it forwards
    """
    layers = [
        {
            "name": layer.name,
            "op": layer.op,
            "parameters": layer.parameters,
            "activations": layer.activations,
            "output": layer.output,
            "forward_ms": layer.forward_s * 1e3,
            "backward_ms": layer.backward_s * 1e3,
            "stage": cut.stage_of(i),
        }
        for i, layer in enumerate(profile.layers)
    ]
    edges = [[value.maker, use, value.nbytes] for value in profile.values for use in value.uses]
    boundaries = []
    for start in cut.starts[1:]:
        crossing = profile.crossing(start - 1)
        boundaries.append(
            {
                "after": start - 1,
                "bytes": sum(value.nbytes for value in crossing),
                "values": [value.name for value in crossing],
            }
        )
    times = {"chosen": cut.largest_s, "equal": cut.equal_largest_s}
    largest = {name: None if s is None else s * 1e3 for name, s in times.items()}
    return {"layers": layers, "edges": edges, "cut": boundaries, "largest_ms": largest}

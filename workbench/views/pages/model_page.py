"""The picture of a model that is split, without a run: one message, and the scene draws it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.views.packing import Message
from workbench.views.pages.feed import nothing


def model_page(
    model: Mapping[str, Any], title: str = "Model", memory_limit: int | None = None
) -> Message:
    """Return the message for a page that shows ``model`` (the header's ``run.model``) alone: no
    time bar, no other scenes. ``model["memory"]``: the planned bytes of each stage, if they are
    known.
    """
    message = nothing("No run: the model, as it is split.", scene="model")
    stages = {layer["stage"] for layer in model["layers"]}
    run = {
        "title": title,
        "ranks": len(stages),
        "model": dict(model),
        "alone": True,
        "memory_limit": memory_limit,
    }
    return Message({**message.header, "run": message.header["run"] | run}, message.payload)

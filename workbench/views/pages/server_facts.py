"""The facts about servers for the page.

Of parameters: how far a worker may lead, and what is dropped; of examples: how many there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.training.parameter_servers.clocks import rule_stored

STRATEGY = "parameter_server"
INPUTS = "data_servers"


def server_facts(
    strategy: str, options: Mapping[str, Any], consistency: str, metadata: Mapping[str, str]
) -> dict[str, Any]:
    """Return the header's ``server``: {} for other strategies.

    ``low`` and ``high``: iterations that any worker may lead the slowest by, and with a
    controller's grants; None: no bound, or none that is known. ``drop_above``: staleness above
    which a gradient is dropped, or None. ``replicas``: servers that have each key. ``pushes``: what
    a worker pushes. ``together``: the gradients of a clock make one update. ``waits``: False where
    no worker waits for another. ``mode`` and ``once_per``, of Elephas: "hogwild", "epoch".
    """
    if strategy == "elephas":
        mode, frequency = options.get("mode", "asynchronous"), options.get("frequency", "epoch")
        return _of_elephas(str(mode), str(frequency))
    if strategy != STRATEGY:
        return {}
    stale, above = options.get("stale_gradients", "keep"), int(options.get("drop_above", 0))
    words = {"drop": f"stale > {above} dropped", "scale": "stale gradients scaled"}.get(stale, "")
    return {
        "servers": int(options.get("servers", 1)),
        "models": int(options.get("models", 1)),
        "consistency": consistency,
        **rule_stored(metadata, options),
        "drop_above": above if stale == "drop" else None,
        "replicas": int(options.get("replicas", 1)),
        "pushes": "gradient",
        "words": words,
    }


def _of_elephas(mode: str, frequency: str) -> dict[str, Any]:
    """Return the facts about Elephas's server."""
    bound = 0 if mode == "synchronous" else None
    return {
        "servers": 1,
        "models": 1,
        "consistency": "asp" if bound is None else "bsp",
        "low": bound,
        "high": bound,
        "together": bound == 0,
        "waits": bound == 0,
        "drop_above": None,
        "replicas": 1,
        "pushes": "weight difference",
        "mode": mode,
        "once_per": "minibatch" if frequency == "batch" else "epoch",
        "words": "differences of partitions",
    }


def inputs_facts(strategy: str, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the header's ``inputs``: how many ranks, the first ones, serve examples and do not
    train.
    """
    if strategy != INPUTS:
        return None
    return {"servers": int(options.get("servers", 1))}

"""The facts about servers for the page.

Of parameters: how far a worker may lead, and what is dropped; of examples: how many there are.
"""

from __future__ import annotations

from typing import Any

from workbench.training.parameter_servers.clocks import rule_stored
from workbench.views.scenes import RunRecord, name_of_code

SERVER = "server"  # of a run's metadata: facts that a strategy of its own kind stores beside these


def server_facts(run: RunRecord) -> dict[str, Any] | None:
    """Return the header's ``server``; None where no rank serves parameters.

    ``low`` and ``high``: iterations that any worker may lead the slowest by, and with a
    controller's grants; None: no bound, or none that is known. ``drop_above``: staleness above
    which a gradient is dropped, or None. ``replicas``: servers that have each key. ``pushes``: what
    a worker pushes. ``together``: the gradients of a clock make one update. ``waits``: False where
    no worker waits for another. ``mode`` and ``once_per``, of Elephas: "hogwild", "epoch".
    """
    if run.traits.serves != "parameters":
        return None
    options = run.options
    stale, above = options.get("stale_gradients", "keep"), int(options.get("drop_above", 0))
    words = {"drop": f"stale > {above} dropped", "scale": "stale gradients scaled"}.get(stale, "")
    return {
        "servers": int(options.get("servers", 1)),
        "models": int(options.get("models", 1)),
        "consistency": name_of_code(options.get("consistency", "")),
        **rule_stored(run.metadata, options),
        "drop_above": above if stale == "drop" else None,
        "replicas": int(options.get("replicas", 1)),
        "pushes": "gradient",
        "words": words,
        **(run.read(SERVER) or {}),
    }


def inputs_facts(run: RunRecord) -> dict[str, Any] | None:
    """Return the header's ``inputs``: how many ranks, the first ones, serve examples and do not
    train.
    """
    if run.traits.serves != "examples":
        return None
    return {"servers": int(run.options.get("servers", 1))}

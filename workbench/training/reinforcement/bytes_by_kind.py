"""The bytes of each kind of message in a run with actors: measured, and by formula.

F frames played by all actors, U updates of each of L learners, minibatches of B transitions, N
parameters of w bytes, t bytes of a transition (twice its observation + 36), k frames between two
pulls of an actor:

    experience  F t                        minibatch   L U B (t + 16)
    priorities  L U B 16 (prioritised)     gradients   L U N w (Gorila)
    parameters  F / k · N w, and L U N w for Gorila's learners

Gorila sends 2 N w bytes for each update of a learner, whatever the actors do; Ape-X's learner has
the parameters, and sends them to actors only: at F/U frames an update, F / (U k) · N w.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import polars as pl

KINDS = ("experience", "minibatch", "priorities", "parameters", "gradients")
OF_DRAWN = 16  # bytes of a transition that was drawn beside itself: its key and its weight
OF_PRIORITY = 16  # bytes of a key and its priority
SCHEMA = {"kind": pl.String, "messages": pl.Int64, "nbytes": pl.Int64, "expected": pl.Float64}


def expected(
    roles: Mapping[str, Any], options: Mapping[str, Any], batch: int, frames: int, updates: int
) -> dict[str, float]:
    """Return the bytes of each kind, by the formulas above.

    ``roles``: ranks of each role, bytes of a transition and of the parameters; ``options``: all of
    the strategy's; ``frames``: of all actors; ``updates``: of all learners.
    """
    transition, parameters = roles["transition"], roles["parameters"]
    result = dict.fromkeys(KINDS, 0.0)
    if roles["servers"]:
        result["gradients"] = result["parameters"] = float(updates * parameters)
    if options.get("bundle"):
        return result
    block = options["block"]
    every = block if options["lockstep"] else math.ceil(options["pull_every"] / block) * block
    result["experience"] = float(frames * transition)
    result["minibatch"] = float(updates * batch * (transition + OF_DRAWN))
    if options.get("replay", "prioritised") == "prioritised":
        result["priorities"] = float(updates * batch * OF_PRIORITY)
    result["parameters"] += frames / every * parameters
    return result


def table(
    counted: Mapping[str, tuple[int, int]], roles: Mapping[str, Any], frames: int, updates: int
) -> pl.DataFrame:
    """Return kind, messages, nbytes and expected (bytes by formula), a row for each kind.

    ``counted``: messages and bytes of each kind; ``roles``: what is stored with the run.
    """
    predictions = expected(roles, roles["options"], roles["batch"], frames, updates)
    rows = [(name, *counted.get(name, (0, 0)), predictions[name]) for name in KINDS]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def of_run(events: pl.DataFrame, metadata: Mapping[str, str]) -> pl.DataFrame:
    """Return the table of a run, from its events and what is stored with it; empty without
    actors.
    """
    if "roles" not in metadata:
        return pl.DataFrame(schema=SCHEMA)
    names = events.with_columns(pl.col("name", "kind").cast(pl.String))
    sent = names.filter(pl.col("kind") == "send", pl.col("name").is_in(KINDS))
    each = sent.group_by("name").agg(pl.len().cast(pl.Int64), pl.col("nbytes").sum())
    counted = {name: (messages, nbytes) for name, messages, nbytes in each.iter_rows()}
    marks = names.filter(pl.col("kind") == "metric")
    played = marks.filter(pl.col("name") == "frames").group_by("rank").agg(pl.col("value").max())
    updates = marks.filter(pl.col("name") == "loss").height
    roles = json.loads(metadata["roles"])
    return table(counted, roles, int(played["value"].to_numpy().sum()), updates)

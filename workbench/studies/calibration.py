"""Proofs of predictions on this machine: a line of JSON per proof, in the user's cache folder.

{"change": "Link 0 → 1 at 5 ms", "ms": 81.2, "low": 77.1, "high": 85.3, "measured_ms": 80.4, ...}
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from workbench.choosing.costs import cache_folder

NEAR, FAR = 0.05, 0.1  # errors that are counted
MOST = 1000  # proofs that are read, the newest


def place() -> Path:
    """Return the file of the proofs."""
    return cache_folder() / "proofs.jsonl"


def keep(proof: dict[str, Any]) -> None:
    """Keep a proof; a folder that cannot be written keeps none."""
    try:
        place().parent.mkdir(parents=True, exist_ok=True)
        with place().open("a", encoding="utf-8") as file:
            file.write(json.dumps(proof) + "\n")
    except OSError:
        return


def proofs() -> list[dict[str, Any]]:
    """Return the newest proofs that can be read: those with a prediction and a measurement."""
    try:
        lines = place().read_text(encoding="utf-8", errors="replace").splitlines()[-MOST:]
    except OSError:
        return []
    result = []
    for line in lines:
        try:
            one = json.loads(line)
            numbers = [float(one[name]) for name in ("ms", "low", "high", "measured_ms")]
        except (ValueError, KeyError, TypeError):
            continue
        if all(math.isfinite(number) and number > 0 for number in numbers):
            result.append(one)
    return result


def summary() -> str:
    """Return how well predictions have done on this machine, in words: those of which no run was
    disturbed.
    """
    known = [one for one in proofs() if not one.get("disturbed")]
    if not known:
        return "none proven here yet on runs that nothing disturbed"
    errors = [abs(one["ms"] / one["measured_ms"] - 1) for one in known]
    inside = sum(one["low"] <= one["measured_ms"] <= one["high"] for one in known)
    counts = (sum(error <= most for error in errors) for most in (NEAR, FAR))
    near, far = counts
    return (
        f"{len(known):,} proven here: {near:,} within {NEAR:.0%}, {far:,} within {FAR:.0%}, "
        f"{inside:,} inside of their interval"
    )

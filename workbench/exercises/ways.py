"""Ten incidents, each recorded under four choices: what exercise 15.3 judges a rule by.

``python -m tests.exercises.record_ways`` records them again.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("ways.json")
RESTART_S = 3.0  # seconds from the end of a job that is stopped to its start on other machines
CHOICES = ("skip", "wait", "abandon", "stop")


def incidents() -> list[tuple[dict[str, Any], dict[str, float]]]:
    """Return what a rule is told of each incident, and the goodput of each choice."""
    rows = json.loads(FILE.read_text(encoding="utf-8"))
    return [
        (
            {
                "what": row["what"],
                "seconds": math.inf if row["seconds"] is None else row["seconds"],
                "struck": row["struck"],
                "ranks": 3,
                "restart_seconds": RESTART_S,
            },
            {choice: row[choice] for choice in CHOICES},
        )
        for row in rows
    ]

"""``wb.check`` of algorithms that are right, and of some that are wrong; and interrupted ones."""

from __future__ import annotations

import random

import workbench as wb
from tests.studies.checking import algorithms as users
from tools.soak.runs import Say, interrupt_after
from workbench.collectives import OPERATIONS, algorithms

WRONG = ("receives_first", "raises", "dies", "doubles", "sends_too_much", "wrong_shape", "loops")


def right(chance: random.Random, say: Say) -> None:
    operation = chance.choice([*OPERATIONS])
    name = chance.choice(algorithms(operation))
    say(f"{operation} {name}")
    report = wb.check(operation, name, timeout=30, **_few(chance))
    assert report.ok, str(report)


def wrong(chance: random.Random, say: Say) -> None:
    function = getattr(users, chance.choice(WRONG))
    say(function.__name__)
    report = wb.check("all_reduce", function, timeout=1, **_few(chance, least=3))
    assert not report.ok, str(report)


def interrupted(chance: random.Random, say: Say) -> None:
    after = chance.uniform(0.05, 1.5)
    say(f"after {after:.2f} s")
    with interrupt_after(after):
        wb.check("all_reduce", users.ring, ranks=(2, 3, 4), timeout=30)


def _few(chance: random.Random, least: int = 1) -> dict[str, object]:
    counts = chance.sample(range(least, 6), 2)
    return {"ranks": counts, "sizes": (5, 500), "dtypes": chance.sample(["float32", "int64"], 1)}

"""Runs of every strategy with every recovery policy, and faults of all kinds drawn by chance."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable

import workbench as wb
from tools.soak.jobs import JOBS, experiment
from workbench.studies import chaos
from workbench.user_code import source

DRAWS = 200  # at most, until a policy fits a strategy
WAITS = ("wait", "quorum")  # bounds of these policies are short here


def recovers(chance: random.Random, say: Callable[[str], None]) -> int:
    """Run it to its end where the policy can; else its error must name a rank that was struck.
    Returns how many faults struck.
    """
    with tempfile.TemporaryDirectory() as folder:
        trial = drawn(chance, folder)
        exp = trial.experiment
        say(f"{exp.strategy} ×{exp.ranks}, {exp.recovery}, {dict(exp.options) or ''}")
        say(f"{[one.fault for one in exp.faults]}")
        outcome = chaos.done(trial)
    assert not outcome.wrong, f"{outcome.words}\n{trial.experiment.to_yaml()}"
    return outcome.struck


def drawn(chance: random.Random, folder: str) -> chaos.Trial:
    """Return a trial with a policy that fits its strategy; all strategies and policies come."""
    policies = source.available("recovery")
    for _ in range(DRAWS):
        strategy, policy = chance.choice([*JOBS]), chance.choice(policies)
        fields = {
            "iterations": chance.randrange(10, 30),
            "recovery": policy,
            "timeout": "5 s" if policy in WAITS else "20 s",
            "network": wb.Network(),
            "record": True,
            "pad_compute": chance.choice([None, "5 ms"]),
            "dtype": chance.choice(["float32", "float64"]),  # in which losses are judged as well
        }
        if policy == "quorum":
            fields["quorum_timeout"] = "0.5 s"
        if policy == "restart" or chance.random() < 0.3:
            every = chance.randrange(1, 6)
            fields["checkpoint"] = wb.Checkpoint(folder=folder, every=every)
        if chance.random() < 0.3:
            fields["bad_minibatch"] = "skip"
        try:
            exp = experiment(chance, strategy=strategy, **fields)
            if chance.random() < 0.3:
                exp = exp.replace(ranks=(2, exp.ranks))
            return next(chaos.trials(exp, seed=chance.randrange(2**31)))
        except wb.SpecError:
            continue
    raise AssertionError(f"no policy fits any strategy in {DRAWS} draws")

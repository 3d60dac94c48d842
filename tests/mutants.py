"""``python -m tests.mutants``: break one line of the product at a time; its law's test must fail.

In a copy of the tree, and with the tests that ``make test`` selects: a law is tested there as long
as its mutant goes red. Prints a line for each, and ends with 1 if one stays green.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
NEEDED = ("workbench", "tests", "tools", "assets", "pyproject.toml")
LIMIT = 600.0  # seconds for one law's tests


@dataclass(frozen=True)
class Mutant:
    """A law, the line of the product that keeps it, what breaks it, and the tests that must see."""

    law: str
    file: str  # below workbench/
    old: str
    new: str
    tests: tuple[str, ...]  # arguments of pytest, below tests/


MUTANTS = [
    Mutant(
        "A ring all-reduce ends with the sum on every rank.",
        "collectives/all_reduce_ring.py",
        "reduce=reduce if adding else None",
        "reduce=reduce if adding and step else None",
        ("collectives/test_algorithms.py", "-k", "all_reduce-ring"),
    ),
    Mutant(
        "A rank of a ring sends 2n less its last two chunks.",
        "formulas/all_reduce.py",
        "return [2 * elements - c[(r + 1) % n] - c[(r + 2) % n]",
        "return [2 * elements - c[r] - c[(r + 2) % n]",
        ("formulas/test_schedules.py",),
    ),
    Mutant(
        "Data parallel training is sequential training, with uneven parts too.",
        "strategies/data_parallel.py",
        "share=len(mine) / len(minibatch.ids)",
        "share=1 / job.ranks",
        ("test_training_laws.py", "-k", "test_equals_sequential"),
    ),
    Mutant(
        "Fully sharded training is sequential training, with uneven parts too.",
        "strategies/fsdp.py",
        "weight=len(mine) / len(minibatch.ids)",
        "weight=1 / job.ranks",
        ("training/fsdp/test_fsdp.py", "-k", "test_equals_sequential"),
    ),
    Mutant(
        "Under SSP the fastest worker leads by at most the bound.",
        "consistency/ssp.py",
        "iteration - clocks.slowest <= self.staleness",
        "iteration - clocks.slowest <= self.staleness + 1",
        ("training/parameter_servers/test_consistency.py",),
    ),
    Mutant(
        "1F1B holds min(M, K - d) microbatches at stage d.",
        "schedules/1f1b.py",
        "min(microbatches, ranks - stage)",
        "min(microbatches, ranks)",
        ("training/pipelines/test_schedule.py",),
    ),
    Mutant(
        "Gossip weights are doubly stochastic: the mean of the replicas stays.",
        "training/gossip/graphs.py",
        "1 / (1 + max(degree[a], degree[b]))",
        "1 / (1 + degree[a])",
        ("training/gossip/test_graphs.py",),
    ),
    Mutant(
        "Local SGD averages every H iterations.",
        "strategies/local_sgd.py",
        "period=config.every,",
        "period=config.every + 1,",
        ("training/communication_efficient/test_fewer_words_algorithms.py", "-k", "test_local_sgd"),
    ),
    Mutant(
        "A saved run that was damaged is refused.",
        "store/checksum.py",
        "_checksum(path, result[0]) != result[1]",
        "result[1] < 0",
        ("store/test_saved_store.py", "fuzz/test_fuzz.py", "-k", "damaged"),
    ),
    Mutant(
        "A grant by chunk lets every rank send one.",
        "shared_memory/control_block.py",
        "        self._granted = grant\n",
        "        pass\n",
        ("runs/test_control.py", "-k", "step_by_chunk or three_chunks"),
    ),
    Mutant(
        "Every message that was received was sent.",
        "laws/__init__.py",
        "matched_messages(events, complete=complete)",
        "[]",
        ("laws/test_check_events.py",),
    ),
    Mutant(
        "The lost rank is named: the one that was killed, and no survivor.",
        "runs/failure.py",
        "rank, code = min(lost.items())",
        "rank, code = (min(lost) + 1) % len(pids), min(lost.values())",
        ("runs/test_faults.py", "-k", "killed_at_any_moment or kill_of_the_experiment"),
    ),
    Mutant(
        "A transition is drawn in proportion to its priority, and weighted against that.",
        "training/reinforcement/replay.py",
        "weights = (size * probability) ** -self._exponents[1]",
        "weights = (size * probability) ** self._exponents[1]",
        ("training/reinforcement/test_replay.py",),
    ),
    Mutant(
        "A transition names the actor that made it.",
        "training/reinforcement/transitions.py",
        'record["number"] = self._actor, begun.number',
        'record["number"] = 0, begun.number',
        ("laws/test_transitions.py", "-k", "live"),
    ),
    Mutant(
        "A transition is drawn only as long as replay holds it.",
        "training/reinforcement/replay.py",
        "self._records[slots] = records",
        "self._records[slots[1:]] = records[1:]",
        ("laws/test_transitions.py", "-k", "live"),
    ),
    Mutant(
        "An actor gives each transition a number of its own.",
        "training/reinforcement/transitions.py",
        "self._number += 1",
        "self._number += self._number < 100",
        ("laws/test_transitions.py", "-k", "live"),
    ),
    Mutant(
        "Gorila and Ape-X in lockstep are sequential DQN, bit by bit.",
        "training/reinforcement/actor.py",
        "self._pull(self._blocks - warm_up + 1)",
        "self._pull(0)",
        ("training/reinforcement/test_lockstep.py",),
    ),
]


def main() -> int:
    """Try every mutant; return how many stayed green."""
    green = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in NEEDED:
            source = ROOT / name
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, Path(folder, name))
        for mutant in MUTANTS:
            begun = time.monotonic()
            caught = is_seen(mutant, Path(folder))
            green += not caught
            verdict = "red" if caught else "GREEN"
            print(f"{verdict:5} {time.monotonic() - begun:4.0f} s  {mutant.law}", flush=True)
    return green


def is_seen(mutant: Mutant, tree: Path) -> bool:
    """Tell whether the law's tests fail while the product is broken."""
    file = tree / "workbench" / mutant.file
    text = file.read_text()
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.file} has {mutant.old!r} {text.count(mutant.old)} times, not 1")
    file.write_text(text.replace(mutant.old, mutant.new))
    arguments = [f"tests/{word}" if word.endswith(".py") else word for word in mutant.tests]
    selected = ("-m", "not benchmark and not full", "-p", "no:cacheprovider", "-q", "-x")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *selected, *arguments],
            cwd=tree,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    finally:
        file.write_text(text)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{mutant.tests}: pytest ended with {done.returncode}:\n{done.stdout}")
    return done.returncode == 1


if __name__ == "__main__":
    sys.exit(main())

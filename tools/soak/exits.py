"""``python -m tools.soak --exits N``: scripts that end while something of theirs goes on.

Each must end by itself and soon, with its own exit code, without a word on its standard error, and
leave nothing. Several are at it at once: the machine is busy.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.live import ROOT
from tools.soak.young import NAME, descendants

AT_ONCE = 3
LATE = 90.0  # seconds from a script's last line: it hangs
SMALL = "wb.Experiment(ranks=2, iterations={iterations}, batch_size=16, threads=1)"
RUN = SMALL.format(iterations=100_000)
SHORT = SMALL.format(iterations=40)
LEAVES = {
    "a run": f"kept = wb.run({RUN})",
    "a run that trains": f"kept = wb.run({RUN})\nwhile kept.iteration < 3: time.sleep(0.01)",
    "two runs": f"kept = [wb.run({RUN}), wb.run({RUN})]",
    "a run whose rank is frozen": (
        f"kept = wb.run({RUN})\nwhile kept.iteration < 3: time.sleep(0.01)\nkept.freeze(1)"
    ),
    "drift": f"kept = wb.drift({SHORT})",
    "compare": f"kept = wb.compare({{'a': {SHORT}, 'b': {SHORT}.replace(seed=7)}}, seeds=9)",
    "two at once in compare": f"kept = wb.compare([{SHORT}], seeds=9, at_once=2)",
    "crossover": "kept = wb.crossover('ring', 'naive')",
    "speed_up": f"kept = wb.speed_up({SHORT}, ranks=(1, 2))",
    "interval": (
        "import tempfile\n"
        f"exp = {SHORT}.replace(checkpoint=wb.Checkpoint(folder=tempfile.mkdtemp()))\n"
        "kept = wb.interval(exp, mtbf='1 s', every=(2, 5))"
    ),
    "cells": "kept = wb.ranks(2)\nkept.execute('x = dist.all_reduce(torch.ones(3))')",
    "a check in a thread": (
        "import contextlib, threading\n"
        "def look():\n"
        "    with contextlib.suppress(wb.WorkbenchError):  # which is raised where its ranks end\n"
        "        wb.check('all_reduce', 'ring')\n"
        "kept = threading.Thread(target=look, daemon=True)\n"
        "kept.start()"
    ),
}
ENDS = {"": "", "wb.shutdown()": "wb.shutdown()\n"}
TEXT = """
import atexit, os, sys, time
def told():
    with open("/proc/self/schedstat") as file:  # ns on a core, ns in want of one
        return [time.monotonic(), int(file.read().split()[1]) * 1e-9]
begun = []
@atexit.register  # first, so that it is called last
def last():
    (since, waited), (until, more) = begun, told()
    print(since, until - since - (more - waited), flush=True)
import workbench as wb
{leaves}
time.sleep({after})
begun += told()
{end}
"""


@dataclass
class Ended:
    number: int
    leaves: str
    after: float  # seconds from the start of what is left to the script's end
    seconds: float = float("nan")  # from the script's last line to the end of its process
    own_seconds: float = float(
        "nan"
    )  # of them, until the interpreter's own end: on a core or asleep
    wrong: str = ""


@dataclass
class Exits:
    seed: int
    kinds: Sequence[str] = ()  # of LEAVES; none: all
    done: list[Ended] = field(default_factory=list)

    def cases(self, count: int) -> Iterator[Ended]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for one in as_completed([pool.submit(self.case, number) for number in range(count)]):
                self.done.append(one.result())
                yield self.done[-1]

    def drawn(self, number: int) -> tuple[str, str, random.Random]:
        """Draw what a case leaves and how it ends; return the chance that decides the rest, too."""
        chance, names = random.Random(f"exits {self.seed}/{number}"), [*(self.kinds or LEAVES)]
        return names[number % len(names)], chance.choice([*ENDS]), chance

    def case(self, number: int) -> Ended:
        name, end, chance = self.drawn(number)
        case = Ended(number, f"{name} {end}".strip(), 0.0)
        case.after = chance.choice([0.0, 0.1, chance.uniform(0, 1), chance.uniform(0, 5)])
        mark = f"{self.seed}-{number}-{os.getpid()}"
        text = TEXT.format(leaves=LEAVES[name], after=case.after, end=ENDS[end])
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            script = subprocess.Popen(
                [sys.executable, "-c", text],
                cwd="/",
                stdout=out,
                stderr=err,
                env={**os.environ, "PYTHONPATH": str(ROOT), NAME: mark},
                start_new_session=True,
            )
            case.wrong = _waited(script)
            ended = time.monotonic()
            for file in (out, err):
                file.seek(0)
            words = out.read().split()
            if len(words) == 2:
                case.seconds, case.own_seconds = ended - float(words[0]), float(words[1])
            # That another run is live is said where the second begins: no error.
            errors = re.sub(
                r"^\[workbench\] \d+ other run.* live: .*\n", "", err.read(), flags=re.M
            )
            if (script.returncode, errors) != (0, ""):
                case.wrong += f"exit code {script.returncode}: {errors[-3000:]}"
        if left := _left(mark):
            case.wrong += f"{len(left)} processes were left"
        return case

    def summary(self) -> dict[str, Any]:
        """By what was left, and in all."""
        groups: dict[str, list[Ended]] = {}
        for one in sorted(self.done, key=lambda one: one.leaves):
            groups.setdefault(one.leaves, []).append(one)
        return {
            name: {
                "cases": len(cases),
                "wrong": sum(bool(one.wrong) for one in cases),
                **_figures("", [one.seconds for one in cases]),
                **_figures("own ", [one.own_seconds for one in cases]),
            }
            for name, cases in {**groups, "all": self.done}.items()
        }

    def save(self, path: Path, left: dict[str, int]) -> None:
        report = {"seed": self.seed, "left": left, "summary": self.summary()}
        cases = sorted(self.done, key=lambda one: one.number)
        path.write_text(json.dumps({**report, "cases": [asdict(one) for one in cases]}, indent=1))


def _waited(script: subprocess.Popen[bytes]) -> str:
    """Return what was wrong with its end."""
    try:
        script.wait(240)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(script.pid, signal.SIGKILL)
        script.wait()
        return "it hung; "
    return ""


def _left(mark: str) -> list[int]:
    """Processes that are there a moment later; those are killed."""
    deadline = time.monotonic() + 5.0
    while (left := descendants(mark)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


def _figures(what: str, seconds: list[float]) -> dict[str, float]:
    numbers = [one for one in seconds if one == one]
    if not numbers:
        return {}
    return {
        f"{what}median_s": round(statistics.median(numbers), 2),
        f"{what}worst_s": round(max(numbers), 2),
    }

"""Drivers that end in the middle of a run, in every way: nothing of them may be left."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from tests.live import gone, script, until
from tools.soak.runs import Say

STARTS = 60.0  # seconds for a driver to import torch and to train, on a busy machine
TEXT = """
import json, os, signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as in a terminal, nohup or not
signal.signal(signal.SIGINT, signal.default_int_handler)
import workbench as wb
from tests.live import lenet
from workbench.launchers.processes.pool import warm_pool
runs = [wb.run(lenet(ranks={ranks}, strategy={strategy!r}, iterations=100_000))]
team = wb.ranks(2) if {team} else None
while runs[0].iteration < 1:
    assert not runs[0].done, runs[0].result.error
    time.sleep(0.01)
if {frozen}:
    runs[0].freeze(0)
home = warm_pool()
pids = [*runs[0].pids.values(), home.pid, home.process.pid, *(team.pids.values() if team else ())]
print(json.dumps(pids), flush=True)
if team:
    team.execute("while True: dist.all_reduce(torch.ones(100))")
{end}
"""
ENDS = {
    "killed": ("time.sleep(1000)", signal.SIGKILL),
    "terminated": ("time.sleep(1000)", signal.SIGTERM),
    "hung up": ("time.sleep(1000)", signal.SIGHUP),
    "interrupted": ("runs[0].wait()", signal.SIGINT),
    "stopped, then killed": ("time.sleep(1000)", signal.SIGSTOP),
    "comes to its end": ("", None),
    "raises": ("raise ValueError('mine')", None),
    "exits": ("sys.exit(3)", None),
    "exits at once": ("os._exit(3)", None),
}


def ended(chance: random.Random, say: Say) -> None:
    how = chance.choice([*ENDS])
    end, number = ENDS[how]
    waits = number not in (None, signal.SIGINT)  # until it is ended from outside
    options = {
        "ranks": chance.choice([2, 3]),
        "team": waits and chance.random() < 0.4,
        "strategy": chance.choice(["data_parallel", "ddp", "gossip"]),
        "frozen": waits and chance.random() < 0.3,
    }
    if options["strategy"] == "gossip":
        options["ranks"] = 3
    say(f"{how} {options}")
    with tempfile.TemporaryDirectory() as folder:
        driver = script(Path(folder) / "driver.py", TEXT.format(end=end, **options))
        try:
            pids = _pids(driver)
            if number is not None:
                time.sleep(chance.uniform(0, 0.5))
                driver.send_signal(number)
            if number == signal.SIGSTOP:
                driver.kill()
            code = driver.wait(30)
            assert (code == 0) == (how == "comes to its end"), code
            until(lambda: gone(pids), 5, f"nothing is left of a driver: {how}")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.communicate(timeout=10)


def _pids(driver: subprocess.Popen[str]) -> list[int]:
    """Of its ranks and its pool, once they train."""
    assert driver.stdout is not None and driver.stderr is not None
    end = driver.stdout.fileno()
    output, deadline = b"", time.monotonic() + STARTS
    while b"\n" not in output:
        assert time.monotonic() < deadline, f"no ranks within {STARTS:.0f} s"
        if select.select([end], [], [], 0.1)[0]:
            more = os.read(end, 65_536)
            assert more, f"ended with {driver.wait(10)}: {driver.stderr.read()}"
            output += more
    return list(json.loads(output.splitlines()[0]))

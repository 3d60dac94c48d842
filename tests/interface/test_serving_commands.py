"""``workbench lab`` and ``workbench serve`` where there is no display and no terminal: they say
where they are, answer, and end at Ctrl-C with nothing left.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.live import PATIENCE, until
from tests.pairwise import first

ROOT = Path(__file__).parents[2]


# Whether the interpreter, as it ends, leaves out the million objects of its modules.
FROZEN = """
import atexit, gc
atexit.register(lambda: print("frozen", gc.get_freeze_count() > 100_000))
from workbench.cli import app
app()
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def group(pgid: int) -> list[int]:
    """The processes of a process group that still run."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(pgrp) == pgid and state != "Z":
            pids.append(int(stat.parent.name))
    return pids


@pytest.mark.parametrize("command", first(1, ["serve", "lab"]))
def test_it_answers_and_ends_at_control_c(command: str, tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    words = {
        "lab": [
            f"--ServerApp.port={port}",
            "--ServerApp.port_retries=0",
            "--folder",
            str(tmp_path),
        ],
        "serve": ["--port", str(port)],
    }[command]
    env = {name: value for name, value in os.environ.items() if name != "DISPLAY"}
    env |= {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with log.open("wb") as out:
        started = subprocess.Popen(
            [sys.executable, "-c", FROZEN, command, *words],
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        address = rf"http://(127\.0\.0\.1|localhost):{port}/\S*"
        deadline = time.monotonic() + PATIENCE
        while not (match := re.search(address, log.read_text())) or not _answers(match[0]):
            assert started.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        if command == "lab":
            code = "import sys, nbformat, nbformat.sign as s; n = nbformat.read(sys.argv[1], 4); "
            code += "print(s.NotebookNotary().check_signature(n))"
            first = tmp_path / "00_start_here.ipynb"
            command_line = [sys.executable, "-c", code, str(first)]
            assert subprocess.check_output(command_line, env=env, timeout=120).split() == [b"True"]
        os.killpg(started.pid, signal.SIGINT)  # as a terminal does
        started.wait(120)
        until(lambda: group(started.pid) == [], 5, "the end of all that it started")
        assert command == "lab" or "frozen True" in log.read_text()
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # past lines linger
            s.bind(("127.0.0.1", port))  # the port is free again: no server listens there
    finally:
        for pid in group(started.pid):
            os.kill(pid, signal.SIGKILL)
        started.wait()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url.rstrip("."), timeout=5).close()
    except OSError:
        return False
    return True

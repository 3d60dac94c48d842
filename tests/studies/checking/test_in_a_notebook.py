"""A check in a notebook's cell: it says how far it is, and an interrupt ends it and its ranks."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.kernel import started

FUNCTIONS = """
import time
import workbench as wb

def slow(comm, x):
    time.sleep(0.15)
    return x

def endless(comm, x):
    while comm.size > 1:
        pass
    return x

def ranks():
    from workbench.launchers.processes.pool import warm_pool
    pid = warm_pool().pid
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()
"""


def _text(message: dict[str, Any]) -> str:
    return str(message["content"].get("data", {}).get("text/plain", ""))


@pytest.mark.full
def test_it_says_how_far_it_is_and_can_be_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(tmp_path, monkeypatch) as kernel:

        def shows(words: str) -> Any:
            return lambda m: m["msg_type"].endswith("display_data") and words in _text(m)

        kernel.client.execute(FUNCTIONS)
        kernel.client.execute("print(wb.check('all_reduce', slow, ranks=1, dtypes='int64').ok)")
        kernel.until(kernel.printed("True"), 60, "the verdict")
        lines = [m for m in kernel.got if m["msg_type"].endswith("display_data")]
        places = {m["content"]["transient"]["display_id"] for m in lines}
        assert len(places) == 1, "one output, written again and again"
        assert [m["msg_type"] for m in lines[:2]] == ["display_data", "update_display_data"]
        assert "check slow" in _text(lines[0]) and " of 12 cases" in _text(lines[0])
        assert "1 rank, " in _text(lines[-2]) and _text(lines[-1]) == "", "and gone in the end"

        kernel.got.clear()
        endless = "wb.check('all_reduce', endless, ranks=(1, 2), timeout=600)"
        kernel.client.execute(endless, stop_on_error=False)  # what is asked next is not thrown away
        kernel.until(shows("now 2 ranks, 1 float32, eager"), 30, "the case that does not end")
        os.kill(kernel.pid, signal.SIGINT)
        error = kernel.until(lambda m: m["msg_type"] == "error", 10, "an interrupt")["content"]
        assert error["ename"] == "KeyboardInterrupt"
        assert "interrupted in case 37 of 78 (2 ranks, 1 float32, eager)" in error["evalue"]
        assert len(error["traceback"]) < 6, "where in our code it was does not matter"

        again = "wb.check('all_reduce', 'ring', ranks=2, sizes=(8,), dtypes='int64').ok"
        kernel.client.execute(f"left, again = ranks(), {again}")
        kernel.client.execute("print(f'left: {left} again: {again}')")
        kernel.until(kernel.printed("left: [] again: True"), 30, "the next check")

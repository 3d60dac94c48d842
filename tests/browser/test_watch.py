"""``workbench watch``: a job that another user has started is drawn live, and left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.conftest import ROOT, Watched, answers, free_port, sees_chunks_move, wait_for
from tests.live import crowding
from tests.runs.test_attach import TRAIN

pytestmark = pytest.mark.browser
ENV = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.mark.full
def test_a_job_is_drawn_live_and_its_ranks_are_left_alone(
    tmp_path: Path, open_page: Callable[..., Watched]
) -> None:
    folder, log, port = tmp_path / "my job", tmp_path / "log", free_port()
    (tmp_path / "train.py").write_text(TRAIN)
    enough = tmp_path / "enough"  # the job ends once this file is there
    words = [sys.executable, "-m", "workbench.cli", "watch", str(folder), f"--port={port}"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    job: subprocess.Popen[bytes] | None = None
    with log.open("wb") as out:
        server = subprocess.Popen(
            [*words, "--no-browser"], env=ENV, stdout=out, stderr=out, start_new_session=True
        )
        try:
            answers(f"http://127.0.0.1:{port}/watch", server, log)
            page = open_page().page
            page.goto(f"http://127.0.0.1:{port}/watch")
            stage = page.locator(".wb-stage")
            wait_for(lambda: "Waiting for ranks" in stage.inner_text(), "the words while none is")
            job = subprocess.Popen(
                [*torchrun, str(tmp_path / "train.py"), str(enough)],
                start_new_session=True,
                env={**ENV, "WORKBENCH_TRACE": str(folder)},
                stdout=out,
                stderr=out,
            )

            def known(what: str) -> object:
                return stage.evaluate(
                    f"(root) => {{ const k = root.stage.known(); return {what}; }}"
                )

            wait_for(lambda: known("k.state") == "running", "the job")
            rows = known("k.table.rows")
            wait_for(lambda: known("k.table.rows") > rows + 50, "more rows")
            assert known("k.run.ranks") == 2 and known("k.run.readonly") is True
            assert not stage.locator(".wb-hold-hint").is_visible(), "no key that cannot act"
            assert job.poll() is None, "it runs on"
            stage.locator('[data-scene="collectives"]').click()
            sees_chunks_move(stage)
            enough.touch()
            job.wait(120)
            wait_for(lambda: known("k.state") == "finished", "its end")
            server.send_signal(signal.SIGINT)
            began = time.monotonic()
            assert server.wait(60) == 0 and time.monotonic() - began < 5 * crowding()
        finally:
            for process in filter(None, (server, job)):
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    assert "Following" in log.read_text() and "Traceback" not in log.read_text()

"""A real kernel for tests, without a browser: what its front end sends and gets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from tests.live import PATIENCE


class Kernel:
    """A kernel of the pinned ipykernel, and what its front end gets."""

    def __init__(self, client: BlockingKernelClient) -> None:
        self.client, self.pid = client, 0
        self.got: list[dict[str, Any]] = []

    def look(self, seconds: float) -> None:
        """Take what comes within that time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                self.got.append(self.client.get_iopub_msg(timeout=left))
            except Exception as error:
                if type(error).__name__ != "Empty":
                    raise

    def until(self, condition: Any, seconds: float, what: str) -> Any:
        deadline = time.monotonic() + max(seconds, PATIENCE)
        while not (matches := [m for m in self.got if condition(m)]):
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}; got {self.got}"
            self.look(0.05)
        return matches[0]

    def printed(self, words: str) -> Any:
        return lambda m: m["msg_type"] == "stream" and words in m["content"]["text"]


@contextmanager
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    """A kernel in a world of its own, which is gone in the end."""
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    root = str(Path(__file__).parent.parent)
    monkeypatch.setenv("PYTHONPATH", root)
    manager = KernelManager(kernel_name="python3", transport="ipc", ip=str(tmp_path / "kernel"))
    manager.start_kernel(cwd=root)
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE)
        here = Kernel(client)
        client.execute("import os; print(os.getpid())")
        message = here.until(lambda m: m["msg_type"] == "stream", 30, "its process")
        here.pid = int(message["content"]["text"])
        here.got.clear()
        yield here
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)

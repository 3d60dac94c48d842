"""Servers and a browser for the benchmarks that look at pages."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.browser import install

ROOT = Path(__file__).parents[2]


@contextmanager
def served(module: str, *arguments: str) -> Iterator[str]:
    """The address of ``python -m module *arguments``, where ``{port}`` is a free one."""
    with server(module, *arguments) as (address, _):
        yield address


@contextmanager
def server(
    module: str, *arguments: str, stdout: int = subprocess.DEVNULL
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The same, and its process."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [sys.executable, "-m", module, *(text.format(port=port) for text in arguments)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=stdout)
    address = f"http://127.0.0.1:{port}/"
    try:
        _until_it_answers(address, process)
        yield address, process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until_it_answers(address: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=2).close()
            return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("the server of the benchmark does not answer")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser that draws in software."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=install.find(), args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            yield browser
        finally:
            browser.close()

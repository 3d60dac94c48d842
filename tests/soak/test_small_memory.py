"""Little shared memory and full disks: refused in words or left out, never a bus error."""

from __future__ import annotations

import json

import pytest

from tools.soak.small_memory import in_a_namespace
from workbench.recording.events import CONTEXTS


@pytest.mark.full
def test_small_shared_memory_and_a_full_disk() -> None:
    done = in_a_namespace()
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mounts of our own on this machine: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    # Shared memory has no name and no size of /dev/shm's: its 64 MB are not touched.
    assert report["crowd"] == {"ok": True, "error": "None", "replicas": 1}
    assert report["in /dev/shm"] == []
    # Training goes on without its record, and its reader is told.
    trace = report["trace"]
    assert trace["right"] and 0 < trace["rows"] < 2 * CONTEXTS
    assert "the disk was full: later records are missing" in trace["problems"]
    assert done.stderr.count("no room for the trace file") == 1, done.stderr
    assert "needs 268," in report["too large"] and "File too large" in report["too large"]
    assert "smaller chunk_bytes" in report["too large"]

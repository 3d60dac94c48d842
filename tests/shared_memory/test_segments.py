"""Shared memory gives its descriptors back, where its owner forgets to; and numbers of processes
return.
"""

from __future__ import annotations

import gc
import os
import queue
import resource
import socket
import subprocess
import threading
import time
from typing import Any

import pytest

import workbench as wb
from workbench.common import ipc
from workbench.launchers.processes.pool import ForkServer, RankProcess
from workbench.recording.trace_memory import trace_segment
from workbench.shared_memory.segments import Segment, how_it_ended


def open_descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.full
def test_a_segment_that_is_not_closed_gives_its_descriptor_back() -> None:
    before = open_descriptors()
    kept = [Segment.create(4096, "a test") for _ in range(3)]
    assert open_descriptors() == before + 6  # each has one, and its mapping another
    memory = kept[0].memory
    kept[1].close()
    kept.clear()
    assert open_descriptors() == before + 1
    memory[0] = 7  # a user of the memory still has it
    assert memory[0] == 7
    del memory
    assert open_descriptors() <= before


@pytest.mark.full
def test_a_segment_of_another_s_costs_one_descriptor() -> None:
    own = Segment.create(4096, "a test")
    before = open_descriptors()
    opened = Segment.attach(os.getpid(), own.fd)
    opened.memory[5] = 8
    assert own.memory[5] == 8 and open_descriptors() == before + 1
    del opened
    assert open_descriptors() <= before
    own.close()


def test_memory_that_cannot_be_had_leaves_no_descriptor() -> None:
    before, limits = open_descriptors(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, limits[1]))
    try:
        for _ in range(3):
            with pytest.raises(wb.WorkbenchError, match="too little shared memory for the trace"):
                trace_segment("a test")
            with pytest.raises(wb.WorkbenchError, match="it needs 1,000,000 bytes"):
                Segment.create(1_000_000, "a test")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    empty = os.memfd_create("workbench of a test")
    with pytest.raises(ValueError, match="empty"):
        Segment.attach(os.getpid(), empty)
    os.close(empty)
    assert open_descriptors() <= before


def test_a_run_that_cannot_begin_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    take, left = ForkServer.take, [0]

    def none(self: ForkServer, count: int) -> Any:
        if left[0] < count:
            raise wb.WorkbenchError("no processes today")
        left[0] -= count
        return take(self, count)

    wb.run(wb.Experiment(ranks=1, strategy="sequential", iterations=1)).wait(timeout=60)
    before = open_descriptors()
    monkeypatch.setattr(ForkServer, "take", none)
    starts = (
        (lambda: wb.run(wb.Experiment()), 0),
        (lambda: wb.ranks(2), 0),
        (lambda: wb.ranks(2), 1),
    )
    for start, left[0] in starts:
        with pytest.raises(wb.WorkbenchError, match="no processes today"):
            start()
    deadline = time.monotonic() + 10  # the meeting place's own thread ends when it does
    while open_descriptors() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert open_descriptors() <= before


def test_a_new_process_is_not_taken_for_one_of_the_same_number_that_ended_before() -> None:
    fork_server = ForkServer.__new__(ForkServer)
    mine, theirs = socket.socketpair()
    fork_server.process = subprocess.Popen(["true"])
    fork_server._socket, fork_server._lock, fork_server.alive, fork_server.end = (
        mine,
        threading.Lock(),
        True,
        "",
    )
    fork_server.driver, fork_server.environment = os.getpid(), {}
    fork_server._greeted, fork_server._pid = threading.Event(), -1
    handed: queue.Queue[RankProcess | None] = queue.Queue()
    fork_server._requests, fork_server._watchers, fork_server._ended = {7: handed}, {}, {}
    listener = threading.Thread(target=fork_server._listen)
    listener.start()
    ended: list[tuple[int, int]] = []
    with theirs:
        ipc.send(theirs, {"ended": 4_999_999, "code": -9})  # a spare one, which is not watched
        ipc.send(theirs, {"rank_process": 4_999_999, "request": 7}, fds=[theirs.fileno()])
        process = handed.get(timeout=10)
        assert process is not None
        fork_server.watch(process.pid, lambda pid, code: ended.append((pid, code)))
        assert ended == []
        ipc.send(theirs, {"ended": 4_999_999, "code": 0})
        process.socket.close()
        theirs.shutdown(socket.SHUT_RDWR)
    listener.join(10)
    mine.close()
    assert ended == [(4_999_999, 0)]


def test_an_end_by_a_signal_without_a_name_has_words() -> None:
    assert [how_it_ended(-9), how_it_ended(-40)] == [
        "was killed by SIGKILL",
        "was killed by signal 40",
    ]

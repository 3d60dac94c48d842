"""Ranks that are killed, frozen or have left: which ranks learn of it, and what goes on without
them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import workbench as wb
from tests.live import crowding
from tests.pairwise import first
from tests.processes import run, values
from workbench.messaging.watchdog import PeerWait, Watch
from workbench.recording.recorder import Recorder
from workbench.transports.peer_page import Peer, PeerPage

LOST = 1.0  # seconds until survivors know that a rank was killed


_WAYS: dict[str, Callable[[torch.Tensor, int, Any], object]] = {
    "sync": lambda x, victim, net: dist.all_reduce(x),
    "async": lambda x, victim, net: dist.all_reduce(x, async_op=True).wait(),
    "future": lambda x, victim, net: dist.all_reduce(x, async_op=True).get_future().wait(),
    "gloo": lambda x, victim, net: dist.broadcast(x, victim),
    "barrier": lambda x, victim, net: dist.barrier(),
    "recv": lambda x, victim, net: dist.recv(x, None if dist.get_rank() else victim),
    "isend": lambda x, victim, net: dist.isend(torch.ones(3_000_000), victim).wait(),
    "ddp": lambda x, victim, net: net(torch.ones(2, 40)).sum().backward(),
    "outside": lambda x, victim, net: dist.all_reduce(x),
}


def _killed(rank: int, n: int, way: str, folder: str) -> list[Any]:
    """The last rank is killed while the others count on it. When they hear, and what."""
    victim = n - 1
    x = torch.ones(300_000)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(40, 40))
    dist.all_reduce(x)
    mark = Path(folder, "killed")
    if rank == victim:
        if way == "outside":
            Path(folder, "pid").write_text(str(os.getpid()))
            while True:
                dist.all_reduce(x)
        mark.write_text(json.dumps(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)
    if way == "outside" and rank == 0:
        for _ in range(50):
            dist.all_reduce(x)
        mark.write_text(json.dumps(time.monotonic()))
        os.kill(int(Path(folder, "pid").read_text()), signal.SIGKILL)
    try:
        for _ in count() if way == "outside" else range(1):
            _WAYS[way](x, victim, net)
    except Exception as error:
        after = time.monotonic() - json.loads(mark.read_text())
        return [type(error).__name__, str(error), getattr(error, "rank", -1), after]
    return ["nothing", "", -1, 0.0]


@pytest.mark.parametrize(
    "way",
    first(1, ["sync", "ddp", "async", "future", "gloo", "barrier", "recv", "isend", "outside"]),
)
def test_survivors_of_a_killed_rank_name_it(way: str, tmp_path: Path) -> None:
    *survivors, killed = run(_killed, 3, way, str(tmp_path))
    assert killed.code == -signal.SIGKILL
    for rank in survivors:
        assert rank.value is not None, rank.err
        kind, words, named, seconds = rank.value
        if way in ("ddp", "future"):
            assert kind == "RuntimeError" and "PeerLost" in words, (kind, words)
        else:
            assert (kind, named) == ("PeerLost", 2), (kind, words)
        assert "rank 2" in words, words
        assert seconds < LOST * crowding(), (words, seconds)


def _spared(rank: int, n: int, way: str) -> list[Any]:
    """Rank 0 takes messages from all and answers them; the last rank ends in the middle."""
    from workbench.process_group.live_groups import bytes_sent
    from workbench.process_group.session import session
    from workbench.process_group.work import wait_any

    session().next_group = "control"
    control, victim, rounds = dist.new_group(), n - 1, 30
    for group in (dist.group.WORLD, control):
        group.spare([victim])  # type: ignore[union-attr]
    big, small = torch.full((400_000,), float(rank)), torch.zeros(2)
    if rank:
        for i in range(rounds):
            if rank == victim and i == 5:
                _die_after(3 if way == "in mid-message" else 0)
                dist.isend(big, 0)
            push = dist.isend(big, 0)
            dist.recv(small, 0, group=control)
            dist.recv(big, 0)
            push.wait()
            time.sleep(0.01)
        assert (big == rank).all()
        return [bytes_sent()]
    into = {peer: torch.zeros(400_000) for peer in range(1, n)}
    frm = None if way == "from any rank" else 1
    works = {peer: dist.irecv(x, frm and peer) for peer, x in into.items()}
    counts, lost, dropped, answers = dict.fromkeys(into, 0), [], [], []
    while min(counts[peer] for peer in into if peer != victim) < rounds:
        peers = list(works)
        for i in wait_any(list(works.values()), 20.0):
            try:
                works[peers[i]].wait()
            except Exception as error:
                lost.append([type(error).__name__, getattr(error, "rank", -1), str(error)])
                del works[peers[i]]
                began = time.monotonic()
                for group in (dist.group.WORLD, control):
                    dist.send(into[victim], victim, group=group)
                dropped.append(time.monotonic() - began)
                continue
            x = into[peers[i]]
            peer = int(x[0])
            assert (x == peer).all()
            counts[peer] += 1
            dist.isend(small, peer, group=control)
            answers.append(dist.isend(x.clone(), peer))
            if counts[peer] < rounds:
                works[peers[i]] = dist.irecv(x, frm and peers[i])
            else:
                del works[peers[i]]
    for answer in answers:
        answer.wait()
    return [counts, lost, dropped, bytes_sent()]


def _die_after(slots: int) -> None:
    """Be killed once so many slots of the next message to rank 0 are posted."""
    box = dist.group.WORLD.members.outbox(0, 1)  # type: ignore[union-attr]
    post, posted = box.post, []

    def post_and_count(header: Any) -> None:
        post(header)
        posted.append(header)
        if len(posted) == slots:
            os.kill(os.getpid(), signal.SIGKILL)

    box.post = post_and_count
    if not slots:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("way", first(1, ["between messages", "in mid-message", "from any rank"]))
@pytest.mark.parametrize("host", ["one", "each"])
def test_the_end_of_a_rank_that_can_be_spared_ends_its_messages_alone(
    way: str, host: str, tmp_path: Path
) -> None:
    def env(rank: int) -> dict[str, str]:
        return {"WORKBENCH_TRACE": str(tmp_path)} | (
            {"WORKBENCH_HOST": str(rank)} if host == "each" else {}
        )

    *others, killed = run(_spared, 4, way, env=env)
    assert killed.code == -signal.SIGKILL
    assert [rank.code for rank in others] == [0, 0, 0], "\n".join(rank.err for rank in others)
    counts, lost, dropped, sent = others[0].value
    assert counts == {"1": 30, "2": 30, "3": 5}
    if way != "from any rank":
        assert [error[:2] for error in lost] == [["PeerLost", 3]]
        assert dropped[0] < LOST * crowding() and "rank 3" in lost[0][2]
    for rank in others[1:]:
        assert rank.value == [30 * 1_600_000]
    assert sent == 65 * 1_600_000, "neither the grants nor what was dropped"
    detected = wb.load(tmp_path).events.filter(kind="detect", name="lost")
    assert detected.select("rank", "peer").rows() == [(0, 3)]


def _frozen_receiver(rank: int, n: int) -> list[Any]:
    """Large messages to a rank that is stopped wait; those to the others go on."""
    big = torch.full((2_000_000,), float(rank))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    if rank == 2:
        for _ in range(20):
            dist.recv(big, 0)
            dist.send(torch.ones(2), 0)
        return [big[-1].item()]
    waits = dist.isend(big, 1)
    for _ in range(20):
        dist.isend(big, 2)
        dist.recv(torch.zeros(2), 2)
    return [waits.is_completed()]


def test_a_frozen_receiver_holds_no_other_up() -> None:
    *_, last = run(_frozen_receiver, 3, group_timeout=20.0, expendable={0, 1})
    assert last.value == [0.0], last.err


def _frozen(rank: int, n: int) -> list[Any]:
    dist.all_reduce(torch.ones(5))
    if rank == n - 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    start = time.monotonic()
    try:
        dist.all_reduce(torch.ones(5))
    except Exception as error:
        return [type(error).__name__, str(error), time.monotonic() - start]
    return ["nothing", "", 0.0]


@pytest.mark.timing
def test_a_frozen_rank_is_an_error_at_the_timeout() -> None:
    *others, _ = run(_frozen, 3, group_timeout=2.0, expendable={2})
    for rank in others:
        kind, words, seconds = rank.value
        assert kind == "RunTimeout", rank.value
        assert "rank 2, which is stopped" in words
        assert 1.8 < seconds < 3.5 * crowding(), seconds


def _leaves(rank: int, n: int) -> list[Any]:
    dist.all_reduce(torch.ones(5))
    if rank == 1:
        dist.destroy_process_group()
        time.sleep(2.0)
        return []
    start = time.monotonic()
    try:
        dist.all_reduce(torch.ones(5))
    except Exception as error:
        return [type(error).__name__, str(error), time.monotonic() - start]
    return ["nothing", "", 0.0]


def test_a_rank_that_has_left_the_group_is_not_waited_for() -> None:
    kind, words, seconds = values(_leaves, 2)[0]
    assert kind == "PeerLost" and "rank 1" in words and "left the group" in words, words
    assert seconds < LOST * crowding()


def _done_before(rank: int, n: int, folder: str) -> list[float]:
    """The last rank does its part of a gather and is killed; another one finds that in the call
    after it, while the root still waits for a third, which comes late.
    """
    flag = Path(folder, "found")
    x, outs = torch.full((10,), float(rank)), [torch.zeros(10) for _ in range(n * (rank == 0))]
    dist.gather(x, outs or None)
    dist.broadcast(torch.ones(1), 0)  # the root has opened all mailboxes: they go with their owner
    if rank == 1:
        deadline = time.monotonic() + 10
        while not flag.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)  # the root has looked around meanwhile, with the alarm on its page
    dist.gather(x + 1, outs or None)
    if rank == n - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 2:
        with pytest.raises(wb.PeerLost):
            dist.broadcast(x, n - 1)
        flag.touch()
    return [float(out.min()) for out in outs]


def test_what_a_lost_rank_had_done_its_part_of_is_done(tmp_path: Path) -> None:
    root, *survivors, killed = run(_done_before, 4, str(tmp_path))
    assert killed.code == -signal.SIGKILL and (tmp_path / "found").exists()
    assert root.value == [1.0, 2.0, 3.0, 4.0], root.err
    assert [rank.value for rank in survivors] == [[], []], [rank.err for rank in survivors]


class _LastWord:
    """A semaphore that is given just after a rank has given up waiting for it."""

    def __init__(self) -> None:
        self.asked = 0

    def acquire(self, *_: Any) -> bool:
        self.asked += 1
        return self.asked > 1


def test_a_message_that_came_just_before_its_sender_ended_is_taken() -> None:
    peers = [Peer(0, os.getpid(), "", None), Peer(1, os.getpid(), "", None)]
    peers[1].lost = True
    watch = Watch(0, peers, PeerPage.create(2), 10**9, None)
    last: Any = _LastWord()
    lane = Recorder.off(0).lane("comm")
    watch.wait(last, 1, lane, "a test")
    last.asked = -1
    with pytest.raises(wb.PeerLost):
        watch.wait(last, 1, lane, "a test")


def test_a_rank_that_ends_just_as_its_time_is_over_is_lost_and_not_silent() -> None:
    """A recovery policy goes on without a rank that was lost; a silence ends the run."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        pages = [PeerPage.create(2), PeerPage.create(2)]
        pids = (os.getpid(), child.pid)
        peers = [Peer(rank, pids[rank], "", pages[rank]) for rank in (0, 1)]
        watch = Watch(0, peers, pages[0], 1, None)
        peer_wait = PeerWait(watch, 1, Recorder.off(0).lane("comm"), "a test")
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        peer_wait.look()
        with pytest.raises(wb.PeerLost, match=r"rank 1 .* ended"):
            peer_wait.look()
    finally:
        child.kill()
        child.communicate()

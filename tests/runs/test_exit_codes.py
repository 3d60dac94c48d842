"""A process that used the backend ends with its own exit code, whatever it leaves undone.

Every script here goes through the whole end of the interpreter, as ``python script.py`` does.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.pairwise import first
from tests.processes import Ended, command, run

BEGIN = """
import os, sys, time
import torch, torch.distributed as dist
import workbench
dist.init_process_group("workbench")
rank = dist.get_rank()
x = torch.ones(100_000)
dist.all_reduce(x)
"""
ENDINGS = {
    "destroyed": "dist.destroy_process_group()",
    "not destroyed": "",
    "async operation done": "dist.all_reduce(x, async_op=True).wait()",
    "async operation not waited for": "dist.all_reduce(x, async_op=True)",
    "async operation that no rank joins": "if rank == 0: dist.all_reduce(x, async_op=True)",
    "async broadcast that no rank joins": "if rank == 1: dist.broadcast(x, 0, async_op=True)",
    "messages": "dist.isend(x, 1 - rank); dist.recv(x, 1 - rank)",
    "a receive that no rank serves": "if rank == 0: dist.irecv(x, 1)",
    "a message that no rank takes": "if rank == 0: dist.send(torch.ones(3), 1)",
    "a sub-group": "g = dist.new_group([0, 1]); dist.all_reduce(x, group=g, async_op=True)",
    "ranks at different times": "if rank == 0: time.sleep(0.3)",
}


def assert_own_code(ended: list[Ended], code: int) -> None:
    for rank in ended:
        assert rank.code == code, f"rank {rank.rank} ended with {rank.code}:\n{rank.err}"
        assert "terminate called" not in rank.err and "Fatal" not in rank.err, rank.err
        assert "Exception ignored" not in rank.err, rank.err


@pytest.mark.parametrize("ending", first(1, ENDINGS))
def test_exit_code_is_the_scripts_own(ending: str) -> None:
    script = f"{BEGIN}\n{ENDINGS[ending]}\nsys.exit(7)"
    assert_own_code(run(script, 2), 7)


@pytest.mark.full
@pytest.mark.parametrize("ending", ENDINGS)
def test_exit_code_is_the_scripts_own_every_time(ending: str) -> None:
    for _ in range(20):
        assert_own_code(run(f"{BEGIN}\n{ENDINGS[ending]}\nsys.exit(7)", 2), 7)


@pytest.mark.full
def test_between_hosts_too() -> None:
    script = f"{BEGIN}\ndist.all_reduce(x, async_op=True)\nsys.exit(7)"
    for _ in range(2):
        assert_own_code(run(script, 2, env=lambda rank: {"WORKBENCH_HOST": str(rank)}), 7)


def test_an_uncaught_error_is_seen_and_the_others_learn_of_it() -> None:
    script = f"{BEGIN}\nif rank == 1: raise ValueError('mine')\ndist.all_reduce(x)"
    zero, one = run(script, 2)
    assert (zero.code, one.code) == (1, 1)
    assert "ValueError: mine" in one.err
    assert "PeerLost: rank 1" in zero.err and "in all_reduce 2" in zero.err


SCRIPT = f"{BEGIN}\nassert x[0] == dist.get_world_size()\nos.write(1, b'rank %d fine\\n' % rank)\n"


def test_as_a_plain_script_with_one_process(tmp_path: Path) -> None:
    path = tmp_path / "plain.py"
    path.write_text(SCRIPT + "sys.exit(5)")
    one = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    done = command([sys.executable, str(path)], **one)
    assert (done.returncode, done.stdout) == (5, "rank 0 fine\n"), done.stderr
    assert "terminate called" not in done.stderr


@pytest.mark.full
def test_under_torchrun(tmp_path: Path) -> None:
    path = tmp_path / "plain.py"
    path.write_text(SCRIPT)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = command([*torchrun, "--nproc-per-node", "2", str(path)], timeout=90)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "rank 0 fine", "rank 1 fine"]
    assert "terminate called" not in done.stderr
    path.write_text(SCRIPT + "sys.exit(3 if rank == 1 else 0)")
    done = command([*torchrun, "--nproc-per-node", "2", str(path)], timeout=90)
    assert done.returncode == 1 and "exitcode  : 3" in done.stderr, done.stderr


@pytest.mark.full
def test_under_multiprocessing_spawn(tmp_path: Path) -> None:
    path = tmp_path / "spawns.py"
    path.write_text(
        "import os, sys, torch.distributed as dist, torch.multiprocessing as mp\n"
        "def body(rank, size):\n"
        "    import torch, workbench\n"
        "    store = dist.FileStore(sys.argv[1], size)\n"
        "    dist.init_process_group('workbench', store=store, rank=rank, world_size=size)\n"
        "    x = torch.ones(1000)\n"
        "    dist.all_reduce(x, async_op=True)\n"
        "    dist.barrier()\n"
        "    assert x[0] == size\n"
        "if __name__ == '__main__':\n"
        "    mp.spawn(body, (2,), nprocs=2)\n"
        "    sys.exit(4)\n"
    )
    done = command([sys.executable, str(path), str(tmp_path / "store")], timeout=90)
    assert done.returncode == 4, done.stderr
    assert "terminate called" not in done.stderr


def _spawned(rank: int, n: int) -> int:
    return os.getpid()


def test_no_process_is_left_and_nothing_in_dev_shm() -> None:
    before = set(os.listdir("/dev/shm"))
    pids = [rank.value for rank in run(_spawned, 3)]
    assert set(os.listdir("/dev/shm")) - before == set()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]

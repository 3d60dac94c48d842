"""Reports about the surroundings of a job: what Gloo does not mind, the engine does not mind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.processes import command
from tests.public_reports.attached import attached, record

LEFT_OVER = {  # E4, E15, E16: a shell in which other jobs ran, in a container without a home
    "HOME": "/nonexistent",
    "TMPDIR": "/nonexistent",
    "COLUMNS": "0",
    "TERM": "dumb",
    "TZ": "Pacific/Kiritimati",
    "SLURM_PROCID": "7",
    "SLURM_STEP_NUM_TASKS": "9",
    "SLURM_LOCALID": "3",
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "6",
    "PMI_RANK": "4",
    "PMI_SIZE": "8",
    "http_proxy": "http://192.0.2.1:9",
    "https_proxy": "http://192.0.2.1:9",
}
SUM = """
    x = torch.full((3,), float(me + 1))
    dist.all_reduce(x)
    assert (n, x.tolist()) == (2, [3.0] * 3)
    dist.destroy_process_group()
"""


@pytest.mark.full
def test_left_over_variables_and_a_missing_home_change_nothing(tmp_path: Path) -> None:
    ended = attached(tmp_path, 2, SUM, env=LEFT_OVER)
    assert [one.code for one in ended] == [0, 0], [one.err[-3000:] for one in ended]


def test_a_terminal_of_no_width_is_written_to() -> None:
    words = [sys.executable, "-O", "-m", "workbench.cli", "about"]
    done = command(words, COLUMNS="0", TERM="dumb")
    assert done.returncode == 0 and "torch" in done.stdout, done.stderr


HANDLED = """
    import pathlib, signal, threading
    handled = pathlib.Path(os.environ["WORKBENCH_TRACE"]) / "handled"
    if me == 0:  # E5: told to stop while it waits for rank 1, which waits until it has heard
        signal.signal(signal.SIGUSR1, lambda *_: handled.touch())
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    else:
        until = time.monotonic() + 60
        while not handled.exists() and time.monotonic() < until:
            time.sleep(0.02)
    stop = torch.tensor([float(handled.exists())])
    dist.all_reduce(stop, op=dist.ReduceOp.MAX)
    assert stop.item() == 1, "all stop in the same iteration"
    dist.destroy_process_group()
"""


def test_a_signal_is_handled_while_its_rank_waits_in_a_collective(tmp_path: Path) -> None:
    assert record(tmp_path, 2, HANDLED).calls()["completed"].all()


DEFAULTS = """
    import contextlib

    def operations():
        def tensor(*values):
            return torch.tensor(values, dtype=torch.float32, device="cpu")
        x = tensor(me + 1.0, 2.0)
        dist.all_reduce(x)
        parts = [tensor(0.0), tensor(0.0)]
        dist.all_gather(parts, tensor(me + 1.0))
        half, swapped = tensor(0.0), tensor(0.0, 0.0)
        dist.reduce_scatter_tensor(half, tensor(1.0 + me, 2.0 + me))
        dist.all_to_all_single(swapped, tensor(10.0 * me, 10.0 * me + 1))
        said, things = tensor(float(me)), [{"rank": me}]
        dist.broadcast(said, src=1)
        dist.broadcast_object_list(things, src=1, device=torch.device("cpu"))
        dist.barrier()
        if me == 0:
            dist.send(tensor(5.0), 1)
        else:
            dist.recv(half.view(1), 0)
        read = [one.tolist() for one in (x, *parts, half, swapped, said)]
        return read, things

    right = operations()
    assert right[0][0] == [3.0, 4.0] and right[1] == [{"rank": 1}]
    for dtype in (torch.float64, torch.bfloat16):  # E6: defaults that a script has changed
        torch.set_default_dtype(dtype)
        assert operations() == right, dtype
    torch.set_default_dtype(torch.float32)
    torch.set_default_device("meta")
    assert operations() == right
    torch.set_default_device(None)
    torch.use_deterministic_algorithms(True)
    for mode in (torch.device("meta"), torch.inference_mode(), torch.no_grad()):
        with mode:
            assert operations() == right, mode
    dist.destroy_process_group()
"""


@pytest.mark.full
def test_numbers_do_not_depend_on_defaults_or_modes(tmp_path: Path) -> None:
    assert record(tmp_path, 2, DEFAULTS).calls()["completed"].all()


AGAIN = """
    def descriptors():
        return len(os.listdir("/proc/self/fd"))
    dist.barrier()
    for number in range(8):  # E19: a group is made, used and ended, again and again
        group = dist.new_group([0, 1])
        dist.all_reduce(torch.ones(1), group=group)
        dist.destroy_process_group(group)
        first = descriptors() if number == 1 else first if number else 0
    assert descriptors() <= first, (first, descriptors())
    dist.destroy_process_group()
"""


@pytest.mark.full
def test_groups_that_come_and_go_leave_no_descriptor(tmp_path: Path) -> None:
    record(tmp_path, 2, AGAIN)

"""Whole programs in the style of public ones (``programs/``), over "workbench" and over "gloo".

Equal bit for bit: all that they print, losses with every digit, and a SHA-256 of all parameters
after every step of every optimizer. They run with as many ranks as leave Gloo no choice in the
order of its additions: two, or meshes of two by two.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch.distributed as dist

import workbench as wb
from tests.processes import command, run
from workbench import laws

PROGRAMS = Path(__file__).parent / "programs"
# What each rank does: run after run, each with a store of its own, as a launcher would give it.
EACH = """
import contextlib, hashlib, io, json, os, runpy, sys, torch
from torch.optim.optimizer import register_optimizer_step_post_hook
def stepped(optimizer, *_):
    global steps
    steps += 1
    for group in optimizer.param_groups:
        for x in group["params"]:
            x = x.detach()
            x = x.to_local() if hasattr(x, "to_local") else x
            digest.update(x.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
register_optimizer_step_post_hook(stepped)
told = []
for port, path, argv in {runs}:
    os.environ["MASTER_PORT"], sys.argv = str(port), [path, *argv]
    digest, steps = hashlib.sha256(), 0
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(path, run_name="__main__")
    told.append([steps, digest.hexdigest(), printed.getvalue()])
print(json.dumps(told))
"""
RUNS = {
    "ddp_tutorial": (2, []),
    "nano_gpt": (2, []),
    "tensor_parallel": (2, []),
    "min_gpt": (2, []),
    "by_hand": (2, []),
    "sequence_parallel": (2, ["--sequence"]),
    "fsdp2": (2, []),
    "fsdp2_mixed_precision": (2, ["--mixed-precision"]),
    "hsdp": (4, ["--replicas=2"]),
    "pipeline_1f1b": (2, []),
    "pipeline_gpipe": (4, ["--schedule=gpipe"]),
    "checkpointing": (2, []),
    "dtensors": (2, []),
    "accumulating": (2, []),
    "local_sgd": (2, []),
    "uneven_inputs": (2, []),
}
FILES = {
    "sequence_parallel": "tensor_parallel",
    "fsdp2": "fully_sharded",
    "hsdp": "fully_sharded",
    "fsdp2_mixed_precision": "fully_sharded",
    "pipeline_1f1b": "pipeline",
    "pipeline_gpipe": "pipeline",
}
QUICK = ("ddp_tutorial", "by_hand")


def _compared(names: Sequence[str], trace: Path) -> None:
    """Run these programs, all with as many ranks, over both backends."""
    size, runs, stores = RUNS[names[0]][0], [], []
    for name in names:
        for backend in ("workbench", "gloo"):
            store = dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
            path = str(PROGRAMS / f"{FILES.get(name, name)}.py")
            runs.append([store.port, path, [f"--backend={backend}", *RUNS[name][1]]])
            stores.append(store)
    script = EACH.replace("{runs}", repr(runs))
    ended = run(script, size, env={"WORKBENCH_TRACE": str(trace)}, timeout=300.0)
    for rank in ended:
        assert rank.code == 0, f"rank {rank.rank}:\n{rank.out[-3000:]}{rank.err[-6000:]}"
        outputs = json.loads(rank.out.splitlines()[-1])
        for name, ours, gloo in zip(names, outputs[::2], outputs[1::2], strict=True):
            assert ours == gloo, f"{name}, rank {rank.rank}"
            assert ours[0] > 0, "the hash is of something"


@pytest.mark.full
@pytest.mark.timeout(400)
def test_quick_programs_give_the_same_bits_as_over_gloo(tmp_path: Path) -> None:
    _compared(QUICK, tmp_path)
    assert wb.load(tmp_path).dropped == 0


@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", RUNS)
def test_a_program_gives_the_same_bits_as_over_gloo(name: str, tmp_path: Path) -> None:
    _compared([name], tmp_path)
    loaded = wb.load(tmp_path)
    assert loaded.dropped == 0 and laws.check_events(loaded.events) == []
    assert set(loaded.events["rank"].unique()) == set(range(RUNS[name][0]))
    assert "collective" in loaded.events["kind"] or "send" in loaded.events["kind"]


@pytest.mark.full
@pytest.mark.timeout(400)
def test_a_program_that_is_restarted_ends_with_the_same_bits(tmp_path: Path) -> None:
    """Over Gloo without a failure: its own restarts fail at addresses of the attempt before."""

    def ran(name: str, *more: str) -> list[str]:
        words = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        words += ["--nproc-per-node=2", "--max-restarts=1", str(PROGRAMS / "elastic.py")]
        snapshot = tmp_path / name
        ended = command([*words, str(snapshot), f"--backend={name}", *more], 180.0)
        assert ended.returncode == 0, ended.stderr[-4000:]
        return [Path(f"{snapshot}.{rank}").read_text() for rank in (0, 1)]

    ours, gloo = ran("workbench", "--fail-after=1"), ran("gloo")
    assert [one.partition(":")[0] for one in ours] == ["epochs 2 to 3"] * 2
    assert [one.partition(":")[2] for one in ours] == [one.partition(":")[2] for one in gloo]

"""How a driver begins: what ``import workbench`` brings along, and a run beside other work."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

import workbench as wb
from tests.live import LONG, gone, lenet, training
from tests.pairwise import first

T = TypeVar("T")
HEAVY = ["torch", "polars", "IPython", "ipywidgets", "anywidget", "panel", "bokeh", "plotly"]
NAMES = (
    "Experiment Network Link Kill Freeze Slow Jitter run load shutdown "
    "WorkbenchError SpecError CollectiveError PeerLost RunTimeout"
).split()
RUN = (
    "wait result pause resume step slow_motion stop kill freeze thaw slow link pids events store "
    "dropped to_html"
).split()
RESULT = "losses parameters digests bytes_sent lost wall_seconds ok error".split()


def in_a_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it in an event loop of its own, whatever loop a browser test left in this thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result(90)


def in_a_new_interpreter(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parent.parent,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_workbench_is_light() -> None:
    code = f"import sys, workbench; print([m for m in {HEAVY} if m in sys.modules])"
    assert in_a_new_interpreter(code) == "[]"


def test_an_experiment_can_be_written_without_torch() -> None:
    code = (
        "import sys, workbench as wb; e = wb.Experiment(); wb.Experiment.from_yaml(e.to_yaml()); "
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    assert in_a_new_interpreter(code) == "[]"


@pytest.mark.full
def test_a_laboratory_compiles_no_grammars_of_addresses() -> None:
    """By way of plotly, nbformat and jsonschema it did: most of what ``wb.lab()`` took."""
    code = "import sys, workbench as wb; wb.lab(); print('lark' in sys.modules)"
    assert in_a_new_interpreter(code) == "False"


ORDERS = [
    "import workbench, importlib.util as i; i.find_spec('torch')",  # looks for it, as polars does
    "import torch, workbench",
    "import workbench, torch",
]


@pytest.mark.parametrize("order", first(2, ORDERS))
def test_the_backend_is_known_whichever_is_imported_first(order: str) -> None:
    code = f"{order}; import torch.distributed as d; print('workbench' in d.Backend.backend_list)"
    assert in_a_new_interpreter(code) == "True"


@pytest.mark.full
@pytest.mark.parametrize("order", first(1, ["reversed", "sorted"]))
def test_a_public_name_is_never_a_module_of_the_same_name(order: str) -> None:
    """Whatever is asked for first: importing a module of the package puts it there by its name."""
    code = (
        "import types, workbench as wb; "
        f"print([n for n in {order}(wb.__all__) if isinstance(getattr(wb, n), types.ModuleType)])"
    )
    assert in_a_new_interpreter(code) == "[]"


def test_the_public_names_are_there() -> None:
    assert [name for name in NAMES if not hasattr(wb, name)] == []
    assert set(NAMES) <= set(wb.__all__)
    assert [name for name in wb.__all__ if not hasattr(wb, name)] == []
    for error in (wb.SpecError, wb.CollectiveError, wb.PeerLost, wb.RunTimeout, wb.RankError):
        assert issubclass(error, wb.WorkbenchError)
    with pytest.raises(AttributeError, match="Experiment"):
        wb.Experimant  # noqa: B018


def test_runs_and_results_have_what_the_contract_names() -> None:
    begin = time.monotonic()
    run = wb.run(lenet())
    result = run.wait(timeout=60)
    assert [name for name in RUN if not hasattr(run, name)] == []
    assert [name for name in RESULT if not hasattr(result, name)] == []
    assert result.ok and result.error is None and result.lost == []
    assert sorted(run.pids) == sorted(result.digests) == sorted(result.bytes_sent) == [0, 1]
    assert 0 < result.wall_seconds < time.monotonic() - begin
    assert len(result.losses) == 5 and "2 ranks" in repr(run) and "5 iterations" in repr(result)
    assert list(result.parameters)[:2] == ["0.weight", "0.bias"]
    assert sum(value.numel() for value in result.parameters.values()) == 61_706
    assert 0 < result.metrics["accuracy"] < 1


def test_a_run_can_be_awaited_beside_other_work() -> None:
    async def notebook() -> tuple[wb.Result, int]:
        run = wb.run(lenet(iterations=30))
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        beside = asyncio.create_task(tick())
        result = await run
        beside.cancel()
        assert await run is result  # again
        return result, ticks

    result, ticks = in_a_loop(notebook())
    assert result.ok and len(result.losses) == 30
    assert ticks > 5


def test_awaiting_raises_what_the_run_failed_with() -> None:
    async def notebook() -> None:
        run = training(wb.run(lenet(iterations=LONG)))
        run.kill(1)
        with pytest.raises(wb.PeerLost) as caught:
            await run
        assert caught.value.rank == 1 and gone(run.pids.values())

    in_a_loop(notebook())


def test_runs_differ_by_seed_and_repeat_by_it() -> None:
    first, again, other = (wb.run(lenet(seed=seed)).wait(timeout=60) for seed in (3, 3, 4))
    assert first.losses == again.losses and first.digests == again.digests
    assert first.losses != other.losses

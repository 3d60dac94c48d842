"""Ranks of a real Slurm, Ray and Spark: the losses of local ranks to the bit, and a killed rank
named; partitions of Spark, trained where they are (`make test-launchers`).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.launchers.local_slurm import local_slurm, why_no_slurm
from tests.training.elephas.one_row_each import ROWS
from tests.training.elephas.test_elephas import EPOCHS, counted, times
from workbench.common.errors import PeerLost, WorkbenchError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
SMALL: dict[str, Any] = {"task": "mlp_layers", "ranks": 2, "iterations": 4, "batch_size": 12}


@pytest.fixture(scope="module")
def slurm() -> Iterator[None]:
    """A Slurm of two nodes on this machine."""
    if why := why_no_slurm():
        pytest.skip(f"not run here: {why}")
    with local_slurm():
        yield


def check(launcher: str, **options: Any) -> None:
    """Compare with local ranks; then kill one."""
    exp = wb.Experiment(**SMALL)
    there = exp.replace(launcher=launcher, launcher_options=options)
    assert wb.run(there).wait(240).losses == wb.run(exp).wait(120).losses
    run = wb.run(there.replace(iterations=1_000_000))
    deadline = time.monotonic() + 240
    while run.iteration < 3 and not run.done and time.monotonic() < deadline:
        time.sleep(0.05)
    run.kill(1)
    error = run.wait(60, check=False).error
    assert isinstance(error, PeerLost) and "rank 1" in str(error) and "SIGKILL" in str(error)


@pytest.mark.parametrize("via", ["sbatch", "submitit"])
def test_slurm(slurm: None, via: str, tmp_path: Path) -> None:
    if via == "submitit" and not find_spec("submitit"):
        pytest.skip("not run here: no submitit")
    check("slurm", via=via, nodes=2, folder=str(tmp_path))
    deadline = time.monotonic() + 30
    while subprocess.run(["squeue", "-h"], capture_output=True, text=True).stdout.strip():
        assert time.monotonic() < deadline, "a job is left"
        time.sleep(0.5)


def test_ray() -> None:
    if not find_spec("ray"):
        pytest.skip("not run here: no ray")
    check("ray")


def test_spark() -> None:
    if not find_spec("pyspark") or not shutil.which("java"):
        pytest.skip("not run here: no pyspark, or no Java")
    check("spark")


def test_a_run_s_own_spark_session_leaves_no_warehouse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark makes a folder for tables in the current one with its first catalog."""
    if not find_spec("pyspark") or not shutil.which("java"):
        pytest.skip("not run here: no pyspark, or no Java")
    units = f"transform(sequence(0, {ROWS - 1}), i -> double(i = id))"
    file = tmp_path / "units.py"
    file.write_text(
        "def rows(spark):\n"
        f"    units = spark.range({ROWS}).selectExpr('{units}')\n"
        "    units.repartition(2).createOrReplaceTempView('units')\n"
        "    return spark.sql('select * from units')\n"
    )
    (here := tmp_path / "here").mkdir()
    monkeypatch.chdir(here)
    exp = counted("asynchronous", "epoch", launcher="spark")
    with wb.run(exp.replace(options={**exp.options, "rows": f"{file}:rows"})) as run:
        assert run.wait(240).ok
    assert not [*here.iterdir()]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A Spark session of this process, as a notebook has one."""
    if not find_spec("pyspark") or not shutil.which("java"):
        pytest.skip("not run here: no pyspark, or no Java")
    from pyspark.sql import SparkSession

    from workbench.launchers.spark import _end

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.sql.warehouse.dir", folder)
        builder = builder.config("spark.driver.host", "127.0.0.1")
        session = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        _end(session)


@pytest.mark.parametrize("frequency", ["epoch", "batch"])
@pytest.mark.parametrize("mode", ["synchronous", "asynchronous", "hogwild"])
def test_elephas_trains_an_rdd(spark: Any, mode: str, frequency: str) -> None:
    exp = counted(mode, frequency)
    run = wb.run(exp.replace(launcher="spark"))
    there, here = run.wait(240), wb.run(exp).wait(120)
    counts = times(there, 1 / 2 if mode == "synchronous" else 1)
    if mode == "hogwild":
        assert (np.abs(counts - counts.round()) < 1e-9).all() and (counts <= EPOCHS).all()
    else:
        np.testing.assert_allclose(counts, np.full(ROWS, EPOCHS), atol=1e-12)
    if mode == "synchronous":
        assert there.losses == here.losses, "to the bit"
    assert there.bytes_sent == here.bytes_sent and run.dropped == 0
    assert "barrier stage on the 2 partitions" in run.store.metadata["launch"]


def test_elephas_trains_a_view_whose_rows_nothing_else_has(spark: Any) -> None:
    """The rows are those that Spark has made: ``range``, in partitions of its own cutting."""
    frame = spark.range(ROWS).selectExpr(f"transform(sequence(0, {ROWS - 1}), i -> double(i = id))")
    frame.repartition(2).createOrReplaceTempView("units")
    exp = counted("asynchronous", "epoch", launcher="spark", iterations=60, batch_size=2)
    options = {**exp.options, "rows": "units"}
    sizes = spark.table("units").rdd.glom().map(len).collect()
    epochs = exp.iterations // max(sizes)
    run = wb.run(exp.replace(options=options, iterations=epochs * max(sizes), lr=0.25))
    np.testing.assert_allclose(times(run.wait(240)), np.full(ROWS, epochs), atol=1e-12)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (f"select id from range(0, {ROWS}, 1, 3)", "3 partitions for 2 workers.*repartition"),
        ("select 'cat' as animal from range(0, 4, 1, 2)", "field animal of row 0.*'cat'"),
        ("select id from range(0, 1, 1, 2)", "partition 0 has no rows"),
        ("select double(id) from range(0, 4, 1, 2)", "field 0 of a row has 1 numbers.*14"),
        ("", "Spark has no rows 'wrong'"),
    ],
)
def test_rows_of_spark_that_do_not_fit_are_refused(spark: Any, query: str, why: str) -> None:
    spark.catalog.dropTempView("wrong")
    if query:
        spark.sql(query).createOrReplaceTempView("wrong")
    exp = counted("asynchronous", "epoch", launcher="spark")
    with pytest.raises(WorkbenchError, match=why):
        wb.run(exp.replace(options={**exp.options, "rows": "wrong"})).wait(240)

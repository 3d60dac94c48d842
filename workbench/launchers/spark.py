"""Ranks as the tasks of a barrier stage of Spark, which all run at the same time, or not at all.

Plain tasks of Spark run one after another where cores are few, so that ranks would wait for others
that cannot start before they end; a barrier stage is what TorchDistributor takes, too. A task
starts the rank's agent as its child. Where this process has a Spark session, its cluster is taken;
else the one at ``master``; else Spark starts on this machine, for the run.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from workbench.common import threads
from workbench.common.errors import WorkbenchError
from workbench.experiment.spec import Experiment
from workbench.launchers.processes.elsewhere import AgentLauncher
from workbench.launchers.processes.needs import check_address, need_module, need_program
from workbench.launchers.ray import be_parent

TITLE = "Spark"
GENTLE = 1.5  # seconds for the stage to end by itself, once its ranks have


@dataclass(frozen=True, kw_only=True)
class Config:
    address: str = "127.0.0.1"  # of the driver, as nodes reach it; 127.0.0.1: all on this machine
    master: str = ""  # of Spark's cluster, such as spark://10.0.0.5:7077; left out: see above


def check(exp: Experiment, config: Config) -> None:
    """Raise SpecError where this launcher cannot start the experiment's ranks here."""
    need_module("spark", "pyspark", "spark")
    if not os.environ.get("JAVA_HOME"):
        need_program("spark", "java", "install Java 17 or newer (default-jre-headless)")
    check_address(config.address)


class Launcher(AgentLauncher):
    """One task per rank, in one barrier stage."""

    config: Config
    alive = True  # how ranks end is told by their agents
    patience = 300.0  # Spark itself takes its time to start

    def __init__(self) -> None:
        super().__init__()
        self._session: Any = None  # where it is this run's
        self._context: Any = None
        self._group = f"workbench-{secrets.token_hex(4)}"
        self._over, self._why = threading.Event(), ""

    def words(self, count: int) -> str:
        where = self.config.master or "this process's session, or one on this machine"
        return f"a barrier stage of {count} tasks of Spark, at {where}"

    def start(self, count: int, environment: dict[str, str]) -> None:
        self._context = self._join(count)
        slots = self._context.defaultParallelism
        if str(self._context.master).startswith("local") and slots < count:
            raise WorkbenchError(
                f"a barrier stage of {count} tasks needs {count} slots, and this Spark session "
                f"has {slots}: master='local[{count}]'"
            )
        work = _Stage(environment)
        rows = self._context.parallelize(range(count), count).barrier().mapPartitions(work)
        threads.start(lambda: self._follow(rows), "workbench Spark", self._cancel)

    def _join(self, count: int) -> Any:
        """Return the context of a Spark session."""
        from pyspark.sql import SparkSession

        if (session := SparkSession.getActiveSession()) is not None:
            return session.sparkContext
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        host = self.config.address
        builder = SparkSession.builder.appName("workbench")
        builder = builder.master(self.config.master or f"local[{count}]")
        builder = builder.config("spark.ui.enabled", "false").config("spark.driver.host", host)
        builder = builder.config("spark.driver.bindAddress", host)
        try:
            self._session = builder.getOrCreate()
        except Exception as error:
            words = str(error).strip().splitlines()
            raise WorkbenchError(f"no Spark session: {words[0] if words else error!r}") from error
        self._session.sparkContext.setLogLevel("ERROR")
        return self._session.sparkContext

    def _follow(self, rows: Any) -> None:
        """Wait for the stage."""
        try:
            self._context.setJobGroup(self._group, "workbench", interruptOnCancel=True)
            rows.collect()
            self._why = "the barrier stage is over"
        except Exception as error:
            words = [one for one in str(error).splitlines() if one.strip()]
            self._why = " ".join(words[:2]) or repr(error)
        self._over.set()

    def _cancel(self) -> None:
        with contextlib.suppress(Exception):  # the session has ended before
            self._context.cancelJobGroup(self._group)

    def failure(self) -> str:
        return self._why if self._over.is_set() else ""

    def close(self, ranks: int) -> None:
        """End the stage, and the Spark session where it is this run's."""
        super().close(ranks)
        if self._context is not None and not self._over.wait(GENTLE):
            self._cancel()
        if self._session is not None:
            _end(self._session)
        self._session = self._context = None


class _Stage:
    """The work of a task; it travels by name, with the agents' variables."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.variables = variables

    def __call__(self, _rows: Iterator[int]) -> Iterator[int]:
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        yield be_parent({**self.variables, "RANK": str(context.partitionId())})


def _end(session: Any) -> None:
    """End a session with its JVM, which pyspark would keep for the next one."""
    from pyspark import SparkContext

    with contextlib.suppress(Exception):
        session.stop()
    gateway = SparkContext._gateway
    if gateway is not None and (process := getattr(gateway, "proc", None)) is not None:
        with contextlib.suppress(Exception):
            gateway.shutdown()
        process.stdin.close()  # which tells it to end
        with contextlib.suppress(Exception):
            process.wait(5)
        process.kill()
        SparkContext._gateway = SparkContext._jvm = None

"""Ranks as the tasks of a barrier stage of Spark, which all run at the same time, or not at all.

Plain tasks of Spark run one after another where cores are few, so that ranks would wait for others
that cannot start before they end; a barrier stage is what TorchDistributor takes, too. A task
starts the rank's agent as its child. Where the strategy trains rows of Spark's (``feed``), the
stage is on their partitions, a worker each, and rank 0, the server, is beside the driver. Where
this process has a Spark session, its cluster is taken;
else the one at ``master``; else Spark starts on this machine, for the run.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from workbench.common import threads
from workbench.common.errors import SpecError, WorkbenchError
from workbench.experiment.spec import Experiment
from workbench.launchers.processes.agents_parent import AGENT, BarrierTask, be_parent
from workbench.launchers.processes.elsewhere import AgentLauncher
from workbench.launchers.processes.needs import check_address, need_module, need_program
from workbench.launchers.processes.started_command import Command
from workbench.rank import partition_rows
from workbench.user_code.source import Source, is_code, load, shown

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
        self._folder: tempfile.TemporaryDirectory[str] | None = None  # of that session
        self._context: Any = None
        self._group = f"workbench-{secrets.token_hex(4)}"
        self._job_over, self._why = threading.Event(), ""
        self._rows: str | Source = ""
        self._server: Command | None = None  # rank 0, where there are rows

    def feed(self, rows: str | Source) -> None:
        """Have ranks 1, 2, ... on the partitions of these rows: rows(spark), or a table's name."""
        self._rows = rows

    def words(self, count: int) -> str:
        where = self.config.master or "this process's session, or one on this machine"
        if self._rows:
            stage = f"a barrier stage on the {count - 1} partitions of {shown(self._rows)}"
            return f"rank 0 beside the driver, the others {stage}, at {where}"
        return f"a barrier stage of {count} tasks of Spark, at {where}"

    def start(self, count: int, environment: dict[str, str]) -> None:
        self._context = self._join(count)
        slots, tasks = self._context.defaultParallelism, count - bool(self._rows)
        if str(self._context.master).startswith("local") and slots < tasks:
            raise WorkbenchError(
                f"a barrier stage of {tasks} tasks needs {tasks} slots, and this Spark session "
                f"has {slots}: master='local[{tasks}]'"
            )
        if self._rows:
            data = self._partitions(tasks)
            rows = data.barrier().mapPartitions(_Fed(environment))
            self._server = Command([sys.executable, *AGENT], {**environment, "RANK": "0"})
        else:
            numbers = self._context.parallelize(range(count), count)
            rows = numbers.barrier().mapPartitions(BarrierTask(environment))
        threads.start(lambda: self._follow(rows), "workbench Spark", self._cancel)

    def _partitions(self, workers: int) -> Any:
        """Return the RDD of the user's rows."""
        from pyspark import RDD, cloudpickle
        from pyspark.sql import DataFrame, SparkSession

        session = self._session or SparkSession.getActiveSession()
        rows = self._rows
        try:
            if is_code(rows):
                function = load("rows", rows, "")
                if module := sys.modules.get(function.__module__):  # no task can import it
                    cloudpickle.register_pickle_by_value(module)
                data = function(session)
            else:
                data = session.table(rows)
        except SpecError:
            raise
        except Exception as error:
            words = next((one for one in str(error).splitlines() if one.strip()), repr(error))
            why = f"Spark has no rows {shown(rows)}: {type(error).__name__}: {words}"
            raise SpecError.at("options.rows", why) from error
        data = data.rdd if isinstance(data, DataFrame) else data
        if not isinstance(data, RDD):
            why = f"{shown(rows)} gives a {type(data).__name__}, and neither an RDD nor a DataFrame"
            raise SpecError.at("options.rows", why)
        partition_rows.check_count(data.getNumPartitions(), workers)
        return data

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
        self._folder = tempfile.TemporaryDirectory(prefix="workbench-spark-")
        builder = builder.config("spark.sql.warehouse.dir", self._folder.name)  # not the user's
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
            ends = rows.collect()
            refused = [one for one in ends if isinstance(one, str)]
            self._why = refused[0] if refused else "the barrier stage is over"
        except Exception as error:
            words = [one for one in str(error).splitlines() if one.strip()]
            self._why = " ".join(words[:2]) or repr(error)
        self._job_over.set()

    def _cancel(self) -> None:
        with contextlib.suppress(Exception):  # the session has ended before
            self._context.cancelJobGroup(self._group)

    def failure(self) -> str:
        if self._server is not None and not self._server.alive:
            return self._server.end
        return self._why if self._job_over.is_set() else ""

    def close(self, ranks: int) -> None:
        """End the stage, and the Spark session where it is this run's."""
        super().close(ranks)
        if self._context is not None and not self._job_over.wait(GENTLE):
            self._cancel()
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._session is not None:
            _end(self._session)
        if self._folder is not None:
            self._folder.cleanup()
        self._session = self._context = self._folder = None


class _Fed:
    """The work of a task that has rows: they are its rank's. Where any task's are refused, no rank
    starts.
    """

    def __init__(self, variables: dict[str, str]) -> None:
        self.variables = variables

    def __call__(self, rows: Iterator[Any]) -> Iterator[int | str]:
        from pyspark import BarrierTaskContext

        context, problem = BarrierTaskContext.get(), ""
        number = context.partitionId()
        try:
            columns = partition_rows.columns_of(rows, number)
        except SpecError as error:
            problem = str(error)
        if refused := [one for one in context.allGather(problem) if one]:
            yield refused[0]
            return
        fd = partition_rows.write(columns)
        own = {"RANK": str(number + 1), partition_rows.VARIABLE: str(fd)}
        yield be_parent({**self.variables, **own}, [fd])


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

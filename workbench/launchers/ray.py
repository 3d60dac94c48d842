"""Ranks as Ray actors, one each, in a placement group: all of them, or none.

An actor starts the rank's agent as its child, which the kernel ends with it: a lost actor is a lost
rank, and the run names it. Where this process is in a Ray session already, its cluster is taken;
else the one at ``cluster``; else Ray starts on this machine, for the run.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import Any, Literal

from workbench.common.errors import SpecError, WorkbenchError
from workbench.experiment.spec import Experiment
from workbench.launchers.processes.agents_parent import Actor
from workbench.launchers.processes.elsewhere import AgentLauncher
from workbench.launchers.processes.needs import check_address, need_module

TITLE = "Ray"
GENTLE = 1.5  # seconds for actors to end by themselves, once their ranks have
ROOM = 60.0  # seconds for a placement group to be there


@dataclass(frozen=True, kw_only=True)
class Config:
    address: str = "127.0.0.1"  # of the driver, as nodes reach it; 127.0.0.1: all on this machine
    cluster: str = ""  # Ray's address, such as 10.0.0.5:6379 or auto; left out: see above
    placement: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "PACK"  # over nodes
    cpus: float = 1.0  # of a rank's actor, as Ray counts them


def check(exp: Experiment, config: Config) -> None:
    """Raise SpecError where this launcher cannot start the experiment's ranks here."""
    need_module("ray", "ray", "ray")
    check_address(config.address)
    if not config.cpus > 0:
        raise SpecError.at("launcher_options.cpus", "must be more than 0", config.cpus)


class Launcher(AgentLauncher):
    """One actor per rank."""

    config: Config
    alive = True  # how ranks end is told by their agents

    def __init__(self) -> None:
        super().__init__()
        self._actors: list[Any] = []
        self._ends: list[Any] = []
        self._group: Any = None
        self._ours = False  # is the Ray session this run's alone?

    def words(self, count: int) -> str:
        config = self.config
        where = config.cluster or "this process's session, or one on this machine"
        return f"{count} Ray actors of {config.cpus:g} CPU each, {config.placement}, at {where}"

    def start(self, count: int, environment: dict[str, str]) -> None:
        import ray
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self._join(count)
        cpus = self.config.cpus
        self._group = placement_group([{"CPU": cpus}] * count, strategy=self.config.placement)
        if not self._group.wait(ROOM):
            available = ray.cluster_resources().get("CPU", 0.0)
            raise WorkbenchError(
                f"Ray has no room for {count} actors of {cpus:g} CPU each within {ROOM:.0f} s "
                f"({self.config.placement}): the cluster has {available:g} CPU, perhaps in use"
            )
        make: Any = ray.remote(num_cpus=cpus)(Actor)
        for rank in range(count):
            at = PlacementGroupSchedulingStrategy(self._group, rank)
            actor: Any = make.options(scheduling_strategy=at).remote()
            self._actors.append(actor)
            self._ends.append(actor.serve.remote({**environment, "RANK": str(rank)}))

    def _join(self, count: int) -> None:
        """Be in a Ray session."""
        import ray

        if ray.is_initialized():
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would call its makers
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if not self.config.cluster:
            # Ray counts cores and refuses more actors; ranks may share them, as under "local".
            cores = max(os.cpu_count() or 1, int(count * self.config.cpus) + 1)
            options |= {"address": "local", "num_cpus": cores, "include_dashboard": False}
        try:
            ray.init(**{"address": self.config.cluster} | options)
        except Exception as error:
            words = str(error).strip().splitlines()
            raise WorkbenchError(f"no Ray session: {words[0] if words else error!r}") from error
        self._ours = True

    def failure(self) -> str:
        import ray

        done, _ = ray.wait(self._ends, num_returns=len(self._ends), timeout=0)
        for end in done:
            try:
                code = ray.get(end)
            except Exception as error:
                words = str(error).strip().splitlines()
                return f"actor {self._ends.index(end)}: {words[0] if words else error!r}"
            return f"the agent of actor {self._ends.index(end)} ended with exit code {code}"
        return ""

    def close(self, ranks: int) -> None:
        """End the actors, and the Ray session where it is this run's."""
        super().close(ranks)
        with contextlib.suppress(ImportError):
            import ray

            if self._ends:
                ray.wait(self._ends, num_returns=len(self._ends), timeout=GENTLE)
            for actor in self._actors:
                ray.kill(actor)
            if self._group is not None:
                ray.util.remove_placement_group(self._group)
            if self._ours:
                ray.shutdown()
        self._actors, self._ends, self._group, self._ours = [], [], None, False

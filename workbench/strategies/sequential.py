"""One process, the whole minibatch: what every other strategy is compared with.

On a task with an environment: DQN, which plays, remembers and learns in turns. Its defaults are
those of Ape-X, which it is compared with; n_step = 1 and double = False is DQN as it was in 2015.

Paper  Mnih et al., "Human-level control through deep reinforcement learning", Nature 518, 2015.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from workbench.common.errors import SpecError
from workbench.experiment.traits import Traits
from workbench.formulas.memory import Rule
from workbench.rank.attempts import Attempt
from workbench.rank.job import Job
from workbench.tasks._environments import plays

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment

TRAITS = Traits(
    replicas="equal",
    update="whole",
    whole_minibatch=True,
    skips="together",
    plays="too",
    idle=(
        ("priority_exponent", "replay", ("uniform",)),
        ("importance_exponent", "replay", ("uniform",)),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options on a task with an environment; there are none on others."""

    replay: Literal["uniform", "prioritised"] = "uniform"  # which transitions are learned from
    capacity: int = 10_000  # transitions that replay holds
    learn_from: int = 500  # transitions in replay before the first update
    block: int = 4  # transitions that are played, and sent, at a time
    n_step: int = 3  # rewards that a transition sums up
    discount: float = 0.99  # of a reward, by the frame
    double: bool = True  # the network chooses the action that the target network values
    target_every: int = 100  # updates after which the target network is the network again
    epsilon_first: float = 1.0  # probability of a random action in the first frame
    epsilon: float = 0.05  # the same after epsilon_frames
    epsilon_frames: int = 1_000  # over which it goes down
    priority_exponent: float = 0.6  # 0: all alike; 1: in proportion to the error (prioritised)
    importance_exponent: float = 0.4  # 1: what is drawn more often counts so much less

    def __post_init__(self) -> None:
        from workbench.training.reinforcement import options

        options.check_options(self)
        options.annealed(self.epsilon_first, self.epsilon, self.epsilon_frames)


def check(exp: Experiment, config: Config) -> None:
    """Raise SpecError for more than one rank."""
    if exp.ranks != 1:
        raise SpecError.at(
            "ranks",
            "strategy 'sequential' is one process, so ranks=1. For more ranks take "
            "strategy='data_parallel'",
            exp.ranks,
        )


def prepare(exp: Experiment, config: Config) -> dict[str, str]:
    """Check the environment, where there is one."""
    from workbench.training.reinforcement.preparing import check_task, is_played

    if is_played(exp):
        check_task(exp)
    return {}


def holds(config: Config) -> Rule:
    """Return that the one rank holds all."""
    return Rule()


def train(job: Job, config: Config) -> None:
    if plays(job.task):
        from workbench.training.reinforcement import options, sequential

        exploration = options.annealed(config.epsilon_first, config.epsilon, config.epsilon_frames)
        return sequential.train(job, config, exploration)
    model = job.model()
    optimizer = job.optimizer(model)
    for minibatch in job.iterations():
        optimizer.zero_grad()
        with Attempt(job, minibatch, model, minibatch.ids) as attempt:
            loss = job.forward(model, job.load(minibatch.ids))
            job.backward(loss)
        if attempt.skipped:
            continue
        job.update(optimizer)
        job.report(loss, len(minibatch.ids))
    job.finish(model)

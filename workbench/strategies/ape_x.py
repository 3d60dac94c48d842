"""Ape-X: many actors play, one learner learns from what replay holds to be most worth it.

Rank 0 learns, the next ``replays`` ranks hold the transitions, all others are actors. An actor
explores by its own constant ε, computes the first priority of each transition from the values by
which it acted, and pulls parameters now and then. The learner sends each priority back as it finds
it. Gradients stay in the learner: only experience, priorities and pulls travel.

Papers Horgan et al., "Distributed Prioritized Experience Replay", ICLR 2018;
       Schaul et al., "Prioritized Experience Replay", ICLR 2016.
Note   Sizes are those of a small game: the paper's ``block`` is 50, ``target_every`` 2,500, and a
       minibatch 512. Its network is a dueling one; here it is the task's.
Law    in lockstep with one actor it equals sequential DQN on prioritised replay, bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from workbench.common.errors import SpecError
from workbench.experiment.traits import Traits

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment
    from workbench.rank.job import Job

TRAITS = Traits(
    title="Ape-X",
    replicas="served",
    update="asynchronous",
    plays="only",
    messages="roles",
    scene="reinforcement",
    idle=(
        ("when_lagging", "max_policy_lag", (None,)),
        ("ask_ahead", "lockstep", (True,)),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="ape_x"``."""

    replays: int = 1  # ranks that hold transitions, each a shard of them
    actors: int | None = None  # left out: all ranks that have no other role
    capacity: int = 10_000  # transitions that replay holds
    learn_from: int = 500  # transitions in replay before the first update
    block: int = 4  # transitions that are played, and sent, at a time
    n_step: int = 3  # rewards that a transition sums up
    discount: float = 0.99  # of a reward, by the frame
    double: bool = True  # the network chooses the action that the target network values
    target_every: int = 100  # updates after which the target network is the network again
    ladder: float = 0.4  # the first actor's probability of a random action: the largest
    ladder_exponent: float = 7.0  # the last actor's is ladder to the power of 1 + this
    priority_exponent: float = 0.6  # 0: all alike; 1: in proportion to the error (prioritised)
    importance_exponent: float = 0.4  # 1: what is drawn more often counts so much less
    pull_every: int = 40  # frames that an actor plays before it pulls parameters again
    ask_ahead: int = 1  # minibatches that a learner asks for before it needs them
    max_policy_lag: int | None = None  # updates that an actor's parameters may be behind
    when_lagging: Literal["drop", "wait"] = "drop"  # drop what it sends, or have learners wait
    lockstep: bool = False  # one of each role, in turns: equal to sequential training
    record_transitions: bool = False  # a row for each: made, inserted, dropped, drawn, learned from

    @property
    def replay(self) -> str:
        """How replay draws."""
        return "prioritised"

    def __post_init__(self) -> None:
        from workbench.training.reinforcement import options

        options.check_options(self)
        options.check_distributed(self, {"replays": self.replays})
        if not 0 < self.ladder <= 1 or self.ladder_exponent < 0:
            why = "must be above 0 and at most 1, and ladder_exponent 0 or more"
            raise SpecError.at("ladder", why, self.ladder)


def check(exp: Experiment, config: Config) -> None:
    """Raise SpecError for options that do not fit the number of ranks."""
    from workbench.training.reinforcement import options, roles

    roles.check_counts(exp.ranks, {"learners": 1, "replays": config.replays}, config.actors)
    options.check_lockstep(config, exp.ranks, 3)


def prepare(exp: Experiment, config: Config) -> dict[str, str]:
    """Check the environment; tell which rank plays which role."""
    from workbench.training.reinforcement.preparing import check_task, facts
    from workbench.training.reinforcement.roles import Roles

    roles = Roles.of(exp.ranks, 0, 1, config.replays)
    return facts(exp, roles, check_task(exp), config)


def train(job: Job, config: Config) -> None:
    from workbench.training.reinforcement.actor import Actor
    from workbench.training.reinforcement.apex import Learner
    from workbench.training.reinforcement.exploring import Exploration, ladder
    from workbench.training.reinforcement.replay_rank import ReplayRank
    from workbench.training.reinforcement.roles import Roles, spare
    from workbench.training.reinforcement.sequential import layout_of_task

    roles = Roles.of(job.ranks, 0, 1, config.replays)
    spare(roles, job)
    drops = config.max_policy_lag if config.when_lagging == "drop" else None
    waits = config.max_policy_lag if config.when_lagging == "wait" else None
    ahead = 0 if config.lockstep else config.ask_ahead
    if job.rank in roles.actors:
        number = roles.actors.index(job.rank)
        epsilon = ladder(config.ladder, config.ladder_exponent, number, len(roles.actors))
        Actor(
            job,
            config,
            roles,
            Exploration(epsilon, epsilon),
            pull_every=config.pull_every,
            lockstep=config.lockstep,
        ).run()
    elif job.rank in roles.replays:
        layout = layout_of_task(job)
        ReplayRank(job, config, roles, layout, max_lag=drops, ahead=ahead).run()
    else:
        layout = layout_of_task(job)
        Learner(
            job, config, roles, layout, ahead=ahead, lockstep=config.lockstep, bound=waits
        ).run()

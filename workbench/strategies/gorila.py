"""Gorila: many actors play, many learners learn, and servers hold the parameters of all.

The first ``servers`` ranks are servers, then come ``learners``, then ``replays``; all others are
actors. A learner pulls the parameters, draws a minibatch from replay, and pushes the gradient of
DQN's loss to the servers, which apply it as it comes: unless it has missed too many updates. An
actor pulls them now and then. With ``bundle`` every rank but the servers is an actor, a replay and
a learner in one, as the paper ran it: experience does not travel then. Where a rank is lost, the
recovery policies of the parameter server apply: actors and replays keep what they have, and a fresh
one begins with nothing.

Papers Nair et al., "Massively Parallel Methods for Deep Reinforcement Learning", ICML workshop on
       Deep Learning, 2015; Mnih et al., Nature 518, 2015.
Note   The loss is the paper's: one reward, a single Q-network and its target. Later ideas are
       options: ``n_step`` above 1, ``double`` (van Hasselt et al., 2016), and ``replay =
       "prioritised"`` (Schaul et al., 2016). Sizes (``capacity``, ``epsilon_frames``,
       ``target_every``, ...) are those of a small game, hundreds of times below the paper's. The
       servers' update rule is the experiment's ``optimizer``, which cannot be AdaGrad, the
       paper's.
Law    in lockstep with one rank of each role it equals sequential DQN with the same options, bit by
       bit.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from workbench.common.errors import SpecError
from workbench.experiment.traits import Traits

if TYPE_CHECKING:
    from workbench.experiment.spec import Experiment
    from workbench.rank.job import Job
    from workbench.training.reinforcement.gorila import ServerOptions
    from workbench.training.reinforcement.roles import Roles

TRAITS = Traits(
    replicas="served",
    update="asynchronous",
    recovers="any",
    plays="only",
    messages="roles",
    scene="reinforcement",
    idle=(
        ("priority_exponent", "replay", ("uniform",)),
        ("importance_exponent", "replay", ("uniform",)),
        ("when_lagging", "max_policy_lag", (None,)),
        ("ask_ahead", "lockstep", (True,)),
        ("restored_from", "recovery", ("abort", "restart")),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of ``strategy="gorila"``."""

    servers: int = 1  # ranks 0 to servers - 1 serve, the others work
    learners: int = 1  # ranks that learn
    replays: int = 1  # ranks that hold transitions, each a shard of them
    actors: int | None = None  # left out: all ranks that have no other role
    bundle: bool = False  # every rank but the servers is an actor, a replay and a learner in one
    placement: Literal["even", "hash"] | tuple[float, ...] = "even"  # or a share for each server
    replicas: int = 1  # of each parameter: 2, and a lost server's are whole in the next server
    restored_from: Literal["pull", "checkpoint"] = "pull"  # parameters of which no replica is left
    shard_by: Literal["hash", "actor"] = "hash"  # of replay: blocks by hash, or one for each actor
    replay: Literal["uniform", "prioritised"] = "uniform"  # which transitions are learned from
    capacity: int = 10_000  # transitions that replay holds
    learn_from: int = 500  # transitions in replay before the first update
    block: int = 4  # transitions that are played, and sent, at a time
    n_step: int = 1  # rewards that a transition sums up: Gorila's DQN has 1, Ape-X 3
    discount: float = 0.99  # of a reward, by the frame
    double: bool = False  # double Q: the network chooses the action that the target values
    target_every: int = 100  # updates after which the target network is the network again
    epsilon_first: float = 1.0  # probability of a random action in the first frame
    epsilon: float = 0.05  # the same after epsilon_frames
    epsilon_frames: int = 1_000  # over which it goes down
    priority_exponent: float = 0.6  # 0: all alike; 1: in proportion to the error (prioritised)
    importance_exponent: float = 0.4  # 1: what is drawn more often counts so much less
    stale_above: int | None = 16  # updates that a gradient may have missed; left out: any number
    outlier_above: float = 5.0  # standard deviations of the loss; discarded above; 0: none is
    pull_every: int = 40  # frames that an actor plays before it pulls parameters again
    ask_ahead: int = 1  # minibatches that a learner asks for before it needs them
    max_policy_lag: int | None = None  # updates that an actor's parameters may be behind
    when_lagging: Literal["drop", "wait"] = "drop"  # drop what it sends, or have learners wait
    lockstep: bool = False  # one of each role, in turns: equal to sequential training
    record_transitions: bool = False  # a row for each: made, inserted, dropped, drawn, learned from

    def __post_init__(self) -> None:
        from workbench.training.reinforcement import options

        options.check_options(self)
        options.annealed(self.epsilon_first, self.epsilon, self.epsilon_frames)
        options.check_distributed(self, {name: getattr(self, name) for name in _ROLES})
        if self.stale_above is not None and self.stale_above < 0:
            raise SpecError.at("stale_above", "must be 0 or more", self.stale_above)
        if self.outlier_above < 0:
            raise SpecError.at("outlier_above", "must be 0 or more", self.outlier_above)
        if self.lockstep and self.outlier_above:
            why = "must be 0 in lockstep: sequential training discards no gradient"
            raise SpecError.at("outlier_above", why, self.outlier_above)
        if not 1 <= self.replicas <= self.servers:
            why = f"must be between 1 and servers = {self.servers}: each is on that many servers"
            raise SpecError.at("replicas", why, self.replicas)
        if self.bundle:
            self._check_bundle()
        if isinstance(self.placement, tuple):
            from workbench.training.parameter_servers.placement import check_shares

            check_shares(self.placement, self.servers)

    def _check_bundle(self) -> None:
        for name in ("learners", "replays"):
            if getattr(self, name) != 1:
                why = "is not set with bundle: each rank but the servers is all in one"
                raise SpecError.at(name, why, getattr(self, name))
        if self.max_policy_lag is not None:
            why = "is of actors by themselves: a bundle plays by what it has just pulled"
            raise SpecError.at("max_policy_lag", why, self.max_policy_lag)


_ROLES = ("servers", "learners", "replays")


def check(exp: Experiment, config: Config) -> None:
    """Raise SpecError for options that do not fit the number of ranks."""
    from workbench.training.reinforcement import options, roles

    others = ("servers",) if config.bundle else _ROLES
    counts = {name: getattr(config, name) for name in others}
    roles.check_counts(exp.ranks, counts, config.actors)
    options.check_lockstep(config, exp.ranks, 2 if config.bundle else 4)
    if config.restored_from == "checkpoint" and exp.checkpoint is None:
        raise SpecError.at(
            "options.restored_from",
            "this experiment writes no checkpoints: add "
            'checkpoint=wb.Checkpoint(folder="checkpoints", every=20), or take "pull"',
            config.restored_from,
        )
    if config.lockstep and exp.recovers:
        why = "with lockstep one rank of each role takes its turn, and a lost one has none: 'abort'"
        raise SpecError.at("recovery", why, exp.recovery)


def check_survivors(config: Config, same_ranks: bool) -> None:
    """Accept all options: what a lost rank had, others have, or it is recorded as lost."""


def prepare(exp: Experiment, config: Config) -> dict[str, str]:
    """Check the environment; tell which rank plays which role."""
    from workbench.training.reinforcement.preparing import check_task, facts

    sizes = check_task(exp)
    if config.servers > sizes.elements:
        why = f"the network has only {sizes.elements} parameters to divide"
        raise SpecError.at("options.servers", why, config.servers)
    return facts(exp, roles_of(exp.ranks, config), sizes, config)


def roles_of(ranks: int, config: Config) -> Roles:
    """Return which rank plays which role."""
    from workbench.training.reinforcement.roles import Roles

    if config.bundle:
        return Roles.bundled(ranks, config.servers)
    return Roles.of(ranks, config.servers, config.learners, config.replays)


def missing_role(config: Config, ranks: int, members: Collection[int]) -> str:
    """Return a role that none of these ranks of the run plays; "" where each is played."""
    return roles_of(ranks, config).missing(members)


def train(job: Job, config: Config) -> None:
    from workbench.training.reinforcement.roles import spare

    roles, served = roles_of(job.exp.ranks, config), _server_options(config)
    if len(job.team.members) < job.exp.ranks:
        roles = roles.living(job.team.members)
    served.prepare(job, roles)
    spare(roles, job)
    if job.rank in roles.servers or job.rank in roles.learners:
        return _serve_or_learn(job, config, roles)
    from workbench.training.parameter_servers.flat import Flat
    from workbench.training.parameter_servers.members import owned_ranges
    from workbench.training.reinforcement import options
    from workbench.training.reinforcement.actor import Actor
    from workbench.training.reinforcement.replay_rank import ReplayRank
    from workbench.training.reinforcement.sequential import layout_of_task

    if job.rank in roles.replays:
        drops = config.max_policy_lag if config.when_lagging == "drop" else None
        ahead, learners = (0 if config.lockstep else config.ask_ahead), config.learners
        layout = layout_of_task(job)
        return ReplayRank(
            job, config, roles, layout, max_lag=drops, ahead=ahead, updates=learners, served=served
        ).run()
    elements = len(Flat(job.build()).values_N)
    Actor(
        job,
        config,
        roles,
        options.annealed(config.epsilon_first, config.epsilon, config.epsilon_frames),
        holders=[*enumerate(owned_ranges(elements, job, served))],
        pull_every=config.pull_every,
        by_hash=config.shard_by == "hash",
        lockstep=config.lockstep,
        updates=config.learners,
        served=served,
    ).run()


def _serve_or_learn(job: Job, config: Config, roles: Roles) -> None:
    """Be a server, a learner or a bundle."""
    from workbench.training.reinforcement import gorila, options
    from workbench.training.reinforcement.asking import Asking
    from workbench.training.reinforcement.sequential import layout_of_task

    served = _server_options(config)
    if job.rank in roles.servers:
        waits = config.max_policy_lag if config.when_lagging == "wait" else None
        return gorila.GorilaServer(job, served, roles, waits).run()
    if roles.bundles:
        exploration = options.annealed(config.epsilon_first, config.epsilon, config.epsilon_frames)
        return gorila.Bundle(job, served, config, roles, config.outlier_above, exploration).run()
    layout = layout_of_task(job)
    asking = Asking(job, config, roles, layout, ahead=config.ask_ahead, lockstep=config.lockstep)
    gorila.GorilaLearner(job, served, config, roles, config.outlier_above, asking).run()


def _server_options(config: Config) -> ServerOptions:
    """Return the options of the parameter server."""
    from workbench.training.reinforcement.gorila import ServerOptions

    stale = config.stale_above
    return ServerOptions(
        consistency="asp",
        servers=config.servers,
        placement=config.placement,
        stale_gradients="keep" if stale is None else "drop",
        drop_above=stale or 0,
        replicas=config.replicas,
        restored_from=config.restored_from,
    )

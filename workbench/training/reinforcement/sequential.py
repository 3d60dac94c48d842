"""Sequential DQN: one process plays, remembers and learns, in turns. The reference of the others.

Before the first update ``learn_from`` transitions are played; before each later one a block. Every
number that it draws comes from a stream of its own, by the seed: one for the game, one for the
actions, one for replay. So a strategy that does the same in several processes, in the same order,
ends with the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from workbench.recording.events import CODE, LOAD
from workbench.tasks._environments import Game
from workbench.training.parameter_servers.flat import Flat
from workbench.training.reinforcement.exploring import Exploration
from workbench.training.reinforcement.learning import Batch, Target, batch_of
from workbench.training.reinforcement.options import Options, exponents, warm_up_blocks
from workbench.training.reinforcement.picture import show
from workbench.training.reinforcement.playing import Player
from workbench.training.reinforcement.replay import Replay
from workbench.training.reinforcement.transitions import layout_of

if TYPE_CHECKING:
    from workbench.rank.job import Job

GENERATION = 2**40  # transitions that no actor makes in one generation
REPLAYING = 3  # what random numbers are for: what is drawn from replay; 1 and 2 are a player's
_METRIC = CODE["metric"]


def player_of(
    job: Job, model: torch.nn.Module, options: Options, exploration: Exploration, actor: int = 0
) -> Player:
    """Return the player of an actor, which plays with ``model``."""
    return Player(
        job.task.environment(),
        model,
        exploration,
        seed=job.seed,
        actor=actor,
        steps=options.n_step,
        discount=options.discount,
        pad_ns=job.exp.pad_environment_ns,
        life=job.team.generation if job.team.state == "memory" else 0,
        first=job.team.generation * GENERATION,
    )


def layout_of_task(job: Job) -> np.dtype:
    """Return the record of the transitions of this task."""
    game = Game(job.task.environment(), 0)
    game.close()
    return layout_of(game.dtype, game.shape)


def replay_of(
    job: Job, layout: np.dtype, options: Options, capacity: int, shard: int = 0
) -> Replay:
    """Return a shard of replay."""
    return Replay(capacity, layout, [job.seed, REPLAYING, shard], exponents(options))


def target_of(job: Job, options: Options) -> Target:
    """Return the target network, equal to the network that any rank begins with."""
    return Target(job.build(), options.target_every, options.double)


def play(job: Job, player: Player, count: int, version: int) -> np.ndarray:
    """Play a block, recorded with the returns of the episodes that ended in it."""
    with job.computing(LOAD, "play"):
        block = player.block(count, version)
    for value in player.returns:
        job.recorder.mark(_METRIC, "return", value=value)
    job.recorder.mark(_METRIC, "frames", value=player.frames)
    show(job, player)
    return block


def note_age(job: Job, sampled: np.ndarray, version: int) -> None:
    """Record the mean age of a minibatch: updates since the policies that it was played by."""
    age = version - sampled["transition"]["version"]
    job.recorder.mark(_METRIC, "sample age", value=float(age.mean()))


def train(job: Job, options: Options, exploration: Exploration) -> None:
    """Train on the task's environment, alone."""
    model = job.model(keep=False)
    flat = Flat(model)
    parameter = torch.nn.Parameter(flat.values_N, requires_grad=False)
    parameter.grad = flat.grads_N
    optimizer = job.optimizer([parameter], keep=False)
    player = player_of(job, model, options, exploration)
    replay = replay_of(job, player.layout, options, options.capacity)
    target = target_of(job, options)
    for minibatch in job.iterations():
        version = minibatch.iteration
        for _ in range(1 if version else warm_up_blocks(options)):
            replay.add(play(job, player, options.block, version))
        target.follow(model, version)
        sampled = replay.sample(job.exp.batch_size)
        note_age(job, sampled, version)
        flat.grads_N.zero_()
        loss = job.forward(model, load(job, sampled), target.loss)
        job.backward(loss)
        replay.update(target.priorities(sampled))
        job.report(loss, len(sampled))
        job.update(optimizer)
    player.close()
    job.finish(model, alone=True)


def load(job: Job, sampled: np.ndarray) -> Batch:
    """Return what was drawn as a batch; the row of it is one of loading."""
    batch: Batch = job.load(np.arange(len(sampled)), lambda: batch_of(sampled, job.dtype))
    return batch

"""Training loops of scripts that are wrong, each with the words that name its mistake (WRONG).

Each is on 2 ranks and minibatches of 12, so that every rank has six samples, unless the loop cuts
them otherwise.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from tests.studies.drift.right_loops import average, sgd


def adds(rank, size, model, minibatches):
    optimizer = sgd(model)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()


def adds_two_passes(rank, size, model, minibatches):
    optimizer = sgd(model)
    for x, y in minibatches:
        optimizer.zero_grad()
        for half in range(2):
            mine = slice(2 * rank + half, None, 2 * size)
            F.cross_entropy(model(x[mine]), y[mine]).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()


def adds_under_adamw(rank, size, model, minibatches):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()


def divides_twice(rank, size, model, minibatches):
    optimizer = sgd(model)
    for x, y in minibatches:
        optimizer.zero_grad()
        (F.cross_entropy(model(x[rank::size]), y[rank::size]) / size).backward()
        average(model, size)
        optimizer.step()


def never_averages(rank, size, model, minibatches):
    optimizer = sgd(model)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
        optimizer.step()


def never_averages_under_adam(rank, size, model, minibatches):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size], label_smoothing=0.1).backward()
        optimizer.step()


def averages_a_copy(rank, size, model, minibatches):
    optimizer = sgd(model)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
        for parameter in model.parameters():
            copy = parameter.grad.clone()
            dist.all_reduce(copy)
            copy /= size
        optimizer.step()


def forgets_a_parameter(rank, size, model, minibatches):
    optimizer = sgd(model)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
        for parameter in [*model.parameters()][:-1]:
            dist.all_reduce(parameter.grad)
            parameter.grad /= size
        optimizer.step()


def adds_one_parameter(rank, size, model, minibatches):
    optimizer = sgd(model)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
        average(model, size)
        next(model.parameters()).grad.mul_(size)
        optimizer.step()


def reduces_to_one(rank, size, model, minibatches):
    optimizer = sgd(model)
    for x, y in minibatches:
        optimizer.zero_grad()
        (F.cross_entropy(model(x[rank::size]), y[rank::size]) / size).backward()
        for parameter in model.parameters():
            dist.reduce(parameter.grad, 0)
        optimizer.step()


def takes_the_same(rank, size, model, minibatches):
    optimizer = sgd(model)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(x[0::size]), y[0::size]).backward()
        average(model, size)
        optimizer.step()


def takes_the_same_block(rank, size, model, minibatches):
    optimizer = sgd(model)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(x.chunk(size)[0]), y.chunk(size)[0]).backward()
        average(model, size)
        optimizer.step()


def leaves_samples_out(rank, size, model, minibatches):
    optimizer = sgd(model)
    for x, y in minibatches:
        optimizer.zero_grad()
        few = len(y) // size - (size > 1)
        mine = slice(rank * few, (rank + 1) * few)
        F.cross_entropy(model(x[mine]), y[mine]).backward()
        average(model, size)
        optimizer.step()


def averages_unequal_means(rank, size, model, minibatches):
    optimizer = sgd(model)
    for x, y in minibatches:
        mine = (
            slice(0, 3) if size > 1 and rank == 0 else slice(3, None) if size > 1 else slice(None)
        )
        optimizer.zero_grad()
        F.cross_entropy(model(x[mine]), y[mine]).backward()
        average(model, size)
        optimizer.step()


def weighs_ranks(rank, size, model, minibatches):
    optimizer = sgd(model)
    for x, y in minibatches:
        optimizer.zero_grad()
        weight = 1.0 if size == 1 else (0.7, 0.3)[rank]
        (weight * F.cross_entropy(model(x[rank::size]), y[rank::size])).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()


def other_seeds(rank, size, model, minibatches):
    torch.manual_seed(rank)
    for parameter in model.parameters():
        if size > 1:
            parameter.data += 0.01 * torch.randn_like(parameter)
    optimizer = sgd(model)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
        average(model, size)
        optimizer.step()


def clips_before(rank, size, model, minibatches):
    optimizer = sgd(model)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        average(model, size)
        optimizer.step()


def ddp_without_its_forward(rank, size, model, minibatches):
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-3)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(wrapped.module(x[rank::size]), y[rank::size]).backward()
        optimizer.step()


def stale_gradients(rank, size, model, minibatches):
    optimizer, late = sgd(model), None
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
        average(model, size)
        mine = [parameter.grad.clone() for parameter in model.parameters()]
        if size > 1 and late is not None:
            for parameter, value in zip(model.parameters(), late, strict=True):
                parameter.grad.copy_(value)
        late = mine
        optimizer.step()


def no_sync_to_the_end(rank, size, model, minibatches):
    wrapped = DistributedDataParallel(model)
    optimizer = sgd(model, momentum=0.9)
    for x, y in minibatches:
        optimizer.zero_grad()
        with wrapped.no_sync():
            F.cross_entropy(wrapped(x[rank::size]), y[rank::size]).backward()
        optimizer.step()


ALONE = "the gradients are not averaged: each rank trains alone"
WRONG = {
    adds: "gradients are added, and not divided by the number of ranks",
    adds_two_passes: "added, and not divided by the number of ranks, of 2 backward passes each",
    adds_under_adamw: "gradients are added, and not divided by the number of ranks",
    divides_twice: "divided by the number of ranks once too often",
    never_averages: ALONE,
    never_averages_under_adam: ALONE,
    averages_a_copy: ALONE,
    forgets_a_parameter: f"{ALONE} (only in ",
    adds_one_parameter: "not divided by the number of ranks (only in ",
    reduces_to_one: "only rank 0 has the reduced gradient",
    takes_the_same: "all ranks take the same part of the minibatch, rank 0's",
    takes_the_same_block: "all ranks take the same part of the minibatch, block 0 of it",
    leaves_samples_out: "samples are left out or taken twice",
    averages_unequal_means: "means over parts of different size are averaged",
    weighs_ranks: "added with the weights 1, 1; right is 0.714, 1.67",
    other_seeds: "every rank begins with parameters of its own",
    clips_before: "added with the weights",
    ddp_without_its_forward: ALONE,
    stale_gradients: "right until iteration 2, whose update is the first wrong one",
    no_sync_to_the_end: ALONE,
}

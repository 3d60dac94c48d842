"""Training loops of scripts that are right: they train as they do on one rank.

Each is on 2 ranks and minibatches of 12, so that every rank has six samples, unless the loop cuts
them otherwise.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def average(model, size):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= size


def sgd(model, lr=0.1, **more):
    return torch.optim.SGD(model.parameters(), lr=lr, **more)


def as_usual(rank, size, model, minibatches, optimizer, loss):
    for x, y in minibatches:
        optimizer.zero_grad()
        loss((x[rank::size], y[rank::size])).backward()
        average(model, size)
        optimizer.step()


def in_blocks(rank, size, model, minibatches, optimizer, loss):
    for x, y in minibatches:
        optimizer.zero_grad()
        loss((x.chunk(size)[rank], y.chunk(size)[rank])).backward()
        average(model, size)
        optimizer.step()


def accumulates(rank, size, model, minibatches, optimizer, loss):
    for x, y in minibatches:
        optimizer.zero_grad()
        for half in range(2):
            mine = slice(2 * rank + half, None, 2 * size)
            (loss((x[mine], y[mine])) / 2).backward()
        average(model, size)
        optimizer.step()


def clips(rank, size, model, minibatches):
    optimizer = sgd(model)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
        average(model, size)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()


def clips_values(rank, size, model, minibatches):
    optimizer = sgd(model)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
        average(model, size)
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)
        optimizer.step()


def warms_up(rank, size, model, minibatches):
    optimizer = sgd(model)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.25, total_iters=4)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
        average(model, size)
        optimizer.step()
        schedule.step()


def adamw(rank, size, model, minibatches):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
        average(model, size)
        optimizer.step()


def smooths_labels(rank, size, model, minibatches):
    optimizer = sgd(model)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size], label_smoothing=0.1).backward()
        average(model, size)
        optimizer.step()


def freezes_a_layer(rank, size, model, minibatches):
    first, *others = model.parameters()
    first.requires_grad_(False)
    optimizer = torch.optim.SGD(others, lr=0.1)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
        average(model, size)
        optimizer.step()


def with_ddp(rank, size, model, minibatches):
    wrapped = DistributedDataParallel(model)
    optimizer = sgd(model)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(wrapped(x[rank::size]), y[rank::size]).backward()
        optimizer.step()


def with_ddp_and_momentum(rank, size, model, minibatches):
    wrapped = DistributedDataParallel(model)
    optimizer = sgd(model, momentum=0.9, nesterov=True, weight_decay=1e-3)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(wrapped(x[rank::size]), y[rank::size]).backward()
        optimizer.step()


def by_hand(rank, size, model, minibatches):
    for x, y in minibatches:
        model.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
        average(model, size)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.02 * parameter.grad


def weighs_samples(rank, size, model, minibatches):
    optimizer = sgd(model)
    for x, y in minibatches:
        mine = (
            slice(0, 3) if size > 1 and rank == 0 else slice(3, None) if size > 1 else slice(None)
        )
        optimizer.zero_grad()
        (F.cross_entropy(model(x[mine]), y[mine], reduction="sum") / len(y)).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()


def penalizes_weights(rank, size, model, minibatches):
    optimizer = sgd(model)
    for x, y in minibatches:
        optimizer.zero_grad()
        penalty = sum(parameter.square().sum() for parameter in model.parameters())
        (F.cross_entropy(model(x[rank::size]), y[rank::size]) + 1e-3 * penalty).backward()
        average(model, size)
        optimizer.step()


def two_optimizers(rank, size, model, minibatches):
    weights = [one for one in model.parameters() if one.dim() > 1]
    biases = [one for one in model.parameters() if one.dim() == 1]
    optimizers = torch.optim.SGD(weights, lr=0.05), torch.optim.Adam(biases, lr=1e-3)
    for x, y in minibatches:
        model.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
        average(model, size)
        for optimizer in optimizers:
            optimizer.step()


def in_one_tensor(rank, size, model, minibatches):
    optimizer = sgd(model)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        flat = torch.cat([one.flatten() for one in gradients])
        dist.all_reduce(flat)
        for one, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            one.copy_(part.view_as(one) / size)
        optimizer.step()


def over_a_server(rank, size, model, minibatches):
    optimizer = sgd(model, lr=0.05)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
        for parameter in model.parameters():
            dist.reduce(parameter.grad, 0)
            parameter.grad /= size
        if rank == 0:
            optimizer.step()
        for parameter in model.parameters():
            dist.broadcast(parameter.data, 0)


def half_the_rate(rank, size, model, minibatches):
    optimizer = sgd(model, lr=0.05)
    for x, y in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
        average(model, size)
        optimizer.step()


def every_second_step(rank, size, model, minibatches):
    optimizer = sgd(model)
    for number, (x, y) in enumerate(minibatches):
        (F.cross_entropy(model(x[rank::size]), y[rank::size]) / 2).backward()
        if number % 2:
            average(model, size)
            optimizer.step()
            optimizer.zero_grad()


def all_on_every_rank(rank, size, model, minibatches, optimizer, loss):
    for batch in minibatches:
        optimizer.zero_grad()
        loss(batch).backward()
        optimizer.step()


RIGHT = (
    as_usual,
    in_blocks,
    accumulates,
    clips,
    clips_values,
    warms_up,
    adamw,
    smooths_labels,
    freezes_a_layer,
    with_ddp,
    with_ddp_and_momentum,
    by_hand,
    weighs_samples,
    penalizes_weights,
    two_optimizers,
    in_one_tensor,
    over_a_server,
    half_the_rate,
    every_second_step,
    all_on_every_rank,
)

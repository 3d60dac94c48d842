"""Answers to the exercises of chapter 8."""

import torch
import torch.distributed as dist
import torch.nn.functional as F


def weighed(rank, model, minibatches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    size = dist.get_world_size()
    for images, labels in minibatches:
        optimizer.zero_grad()
        mine, own = images[rank::size], labels[rank::size]
        (F.cross_entropy(model(mine), own, reduction="sum") / len(labels)).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()


def undivided(rank, model, minibatches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    size = dist.get_world_size()
    for images, labels in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(images[rank::size]), labels[rank::size]).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()


def as_listed(rank, model, minibatches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    size = dist.get_world_size()
    for images, labels in minibatches:
        optimizer.zero_grad()
        F.cross_entropy(model(images[rank::size]), labels[rank::size]).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= size
        optimizer.step()


def clip_last(parameters, limit):
    for parameter in parameters:
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    torch.nn.utils.clip_grad_norm_(parameters, limit)


def clip_first(parameters, limit):
    torch.nn.utils.clip_grad_norm_(parameters, limit)
    for parameter in parameters:
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def clip_the_sum(parameters, limit):
    for parameter in parameters:
        dist.all_reduce(parameter.grad)
    torch.nn.utils.clip_grad_norm_(parameters, limit)
    for parameter in parameters:
        parameter.grad /= dist.get_world_size()


def over_all_tokens(each):
    tokens = torch.tensor(each.numel())
    dist.all_reduce(tokens)
    return each.sum() * dist.get_world_size() / tokens


def own_mean(each):
    return each.mean()


def divided_twice(each):
    tokens = torch.tensor(each.numel())
    dist.all_reduce(tokens)
    return each.sum() / tokens


ANSWERS = {
    "08.1": (60, 64, 100),
    "08.2": ((2, 8), (3, 12), (2.5, 10)),
    "08.3": (weighed, undivided, as_listed),
    "08.4": (7, 8, 1),
    "08.5": (clip_last, clip_first, clip_the_sum),
    "08.6": (over_all_tokens, own_mean, divided_twice),
}

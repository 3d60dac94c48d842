"""A server's shard: what it does with gradients, without processes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from workbench.rank.batches import Minibatches, portion
from workbench.training.parameter_servers.clocks import Policy, policy
from workbench.training.parameter_servers.flat import Flat, Section
from workbench.training.parameter_servers.shard import Shard

LR = 0.5


def sgd(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=LR)


def shard(rule: str = "asp", workers: int = 3, **more: object) -> Shard:
    return Shard(torch.zeros(4), range(1, workers + 1), policy(rule), sgd, **more)


def push(to: Shard, worker: int, gradient: float, share: float = 1.0) -> list[object]:
    to.inbox[worker].fill_(gradient)
    return [*to.take_in(worker, share)]


def test_asynchronous_pushes_are_applied_one_by_one_with_their_staleness() -> None:
    one = shard()
    stale = [push(one, worker, 2.0)[0].staleness for worker in (2, 3, 1)]
    assert stale == [0, 1, 2] and one.version == 3
    assert one.values_n.tolist() == [-3.0] * 4
    one.pulled[1] = one.version
    assert push(one, 1, 0.0)[0].staleness == 0
    assert one.clock == {1: 2, 2: 1, 3: 1}


def test_a_synchronous_update_waits_for_all_and_adds_in_order_of_worker() -> None:
    numbers = torch.tensor([1e8, 1.0, -1e8])  # their float32 sum depends on the order
    ends = set()
    for order in ((1, 2, 3), (3, 1, 2), (2, 3, 1)):
        one = shard("bsp")
        updates = [push(one, worker, float(numbers[worker - 1])) for worker in order]
        assert [len(each) for each in updates] == [0, 0, 3]
        last, *others = updates[-1]
        assert last.worker == order[-1] and last.start_ns <= last.end_ns
        assert all(each.start_ns == each.end_ns == last.end_ns for each in others)
        assert {each.version for each in updates[-1]} == {1}
        ends.add(one.values_n[0].item())
    assert len(ends) == 1
    assert one.clock == {1: 1, 2: 1, 3: 1}


def test_a_worker_that_leaves_is_not_waited_for_and_the_rest_make_a_mean() -> None:
    one = shard("bsp")
    assert push(one, 1, 0.25, share=0.25) == [] == push(one, 3, 0.25, share=0.25)
    updates = one.leave(2)
    assert [each.worker for each in updates] == [3, 1]
    assert one.values_n.tolist() == [-LR] * 4  # 0.25 + 0.25 are half of the minibatch's samples
    assert one.leave(2) == []


def test_no_worker_starts_whose_gradient_still_waits_for_the_others() -> None:
    """Whatever a policy says: the next one would be received into the same place."""
    one = shard("bsp")
    one.policy.may_start = lambda *_: True  # type: ignore[method-assign]
    push(one, 1, 1.0)
    assert not one.may_start(1, 1) and one.may_start(2, 1)


def test_drop_leaves_out_what_missed_too_much_and_counts_it() -> None:
    one = shard(stale="drop", drop_above=1)
    updates = [push(one, worker, 2.0)[0] for worker in (1, 2, 3)]
    assert [each.applied for each in updates] == [True, True, False]
    assert one.version == 2 and one.values_n.tolist() == [-2.0] * 4
    assert one.clock == {1: 1, 2: 1, 3: 1}, "it counts for the clock"


def test_scale_divides_by_the_staleness() -> None:
    one = shard(stale="scale")
    for worker in (1, 2, 3):
        push(one, worker, 2.0)
    assert one.values_n.tolist() == [-(2 + 2 + 1) * LR] * 4


def test_values_that_are_being_sent_are_not_written_to() -> None:
    leaving: list[torch.Tensor] = []
    one = shard(busy=lambda values_n: any(values_n is each for each in leaving))
    leaving.append(one.values_n)
    push(one, 1, 2.0)
    assert leaving[0].tolist() == [0.0] * 4 and one.values_n.tolist() == [-1.0] * 4
    first, leaving[:] = leaving[0], [one.values_n]
    push(one, 1, 2.0)
    assert one.values_n is first, "a buffer that has left is used again"
    assert one.values_n.tolist() == [-2.0] * 4
    held = one.values_n
    leaving.clear()
    push(one, 1, 2.0)
    assert one.values_n is held, "nothing is copied while nothing is sent"


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_buffers_change_nothing(momentum: float) -> None:
    def sgd(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1, momentum=momentum)

    ends = []
    for busy in (True, False):
        start_n = torch.linspace(-1, 1, 1001)
        one = Shard(start_n, (1,), policy("asp"), sgd, busy=lambda _, busy=busy: busy)
        for i in range(5):
            one.inbox[1].copy_(torch.sin(torch.arange(1001.0) + i))
            one.take_in(1, 1.0)
        ends.append(one.values_n)
    assert torch.equal(*ends)


@pytest.mark.parametrize(
    ("rule", "stale", "momentum", "once"),
    [
        ("asp", "keep", 0.0, True),
        ("ssp", "drop", 0.0, True),
        ("bsp", "keep", 0.0, False),  # it waits for others
        ("asp", "scale", 0.0, False),  # it is written to
        ("asp", "keep", 0.9, False),  # the optimizer may keep it
    ],
)
def test_a_gradient_may_stay_with_its_worker_where_it_is_read_once(
    rule: str, stale: str, momentum: float, once: bool
) -> None:
    def sgd(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=LR, momentum=momentum)

    options = {"staleness": 3} if rule == "ssp" else {}
    one = Shard(torch.zeros(4), (1, 2), policy(rule, options), sgd, stale=stale)
    assert one.reads_once == once
    one.inbox[1].fill_(99.0)
    theirs = torch.full((4,), 2.0)
    if once:
        one.take_in(1, 1.0, theirs)
        assert one.values_n.tolist() == [-1.0] * 4 and theirs.tolist() == [2.0] * 4
    one.log = object()  # type: ignore[assignment]  # a replica chain sends it on
    assert not one.reads_once


def test_a_policy_hears_of_every_push_once() -> None:
    heard: list[tuple[int, int]] = []

    class Listens(Policy):
        def may_start(self, worker: int, iteration: int, clocks: object) -> bool:
            return True

        def pushed(self, worker: int, clocks: object) -> None:
            heard.append((worker, clocks.accepted[worker]))  # type: ignore[attr-defined]

    one = Shard(torch.zeros(2), (1, 2), policy(Listens), sgd)
    for worker in (1, 2, 1):
        push(one, worker, 1.0)
    assert heard == [(1, 1), (2, 1), (1, 2)]


# ---- a model as a vector, and parts of it


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    layers[0].bias.requires_grad_(False)
    return layers


def test_a_flat_model_is_the_same_model() -> None:
    plain, flat_model = model(), model()
    flat = Flat(flat_model)
    assert len(flat.values_N) == 6 + 2 + 1
    x = torch.ones(5, 3)
    for one in (plain, flat_model):
        one(x).sum().backward()
    gradients = [p.grad.reshape(-1) for p in plain.parameters() if p.requires_grad]
    assert torch.equal(flat.grads_N, torch.cat(gradients))
    flat.values_N.zero_()
    assert all(not p.any() for p in flat_model.parameters() if p.requires_grad)


@pytest.mark.parametrize("ranges", [[range(2, 5)], [range(0, 2), range(4, 6)], []])
def test_a_part_goes_out_and_comes_back(ranges: list[range]) -> None:
    whole_N = torch.arange(6.0)
    part = Section(whole_N, ranges)
    held = [i for one in ranges for i in one]
    assert part.gather().tolist() == held
    part.section_n.add_(10)
    part.scatter()
    assert whole_N.tolist() == [i + 10.0 * (i in held) for i in range(6)]


# ---- which worker takes which samples


@pytest.mark.parametrize("shares", [None, (0.5, 0.25, 0.25), (1, 0, 0), (0.1, 0.8, 0.1)])
@pytest.mark.parametrize("size", [0, 1, 2, 10, 64])
def test_every_sample_has_one_worker(shares: tuple[float, ...] | None, size: int) -> None:
    ids = np.arange(100, 100 + size)
    parts = [portion(ids, worker, 3, shares) for worker in range(3)]
    assert sorted(np.concatenate(parts)) == ids.tolist()
    if shares and size == 64:
        assert all(abs(len(part) - 64 * s) <= 1 for part, s in zip(parts, shares, strict=True))


def test_sizes_of_minibatches_are_those_of_their_ids() -> None:
    batches = Minibatches(samples=10, batch_size=4, seed=0)
    assert [batches.size(i) for i in range(7)] == [len(batches.ids(i)) for i in range(7)]

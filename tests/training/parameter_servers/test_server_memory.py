"""What servers and workers hold, to the byte; what a limit on it does; and the processor time."""

from __future__ import annotations

from typing import Any

import pytest

import workbench as wb
from tests.live import lenet

L = 246_824  # bytes of LeNet's parameters


def held(**fields: Any) -> dict[int, int]:
    exp = lenet(strategy="parameter_server", **{"memory_limit": "1 GB", **fields})
    return wb.run(exp).wait(timeout=120).memory


@pytest.mark.full
def test_a_server_has_room_for_a_push_of_every_worker() -> None:
    """Values, and a gradient of each worker; bulk synchronous, nothing is sent while it updates."""
    memory = held(ranks=4, momentum=0.9, lr=0.01)
    assert memory[0] == (1 + 3 + 1) * L, "values, three gradients, the momentum"
    assert min(memory[worker] for worker in (1, 2, 3)) > 2 * L, "and activations"
    assert held(ranks=3, optimizer="sgd")[0] == (1 + 2) * L
    assert held(ranks=3, optimizer="adam")[0] == pytest.approx((1 + 2 + 2) * L, abs=16)


def test_servers_share_what_one_would_hold() -> None:
    memory = held(ranks=4, optimizer="sgd", options={"servers": 2})
    assert memory[0] + memory[1] == (1 + 2) * L
    whole = held(ranks=4, optimizer="sgd", options={"servers": 2, "replicas": 2})
    assert whole[0] + whole[1] == 2 * (1 + 2) * L, "each key twice"


@pytest.mark.full
def test_versions_that_are_still_being_sent_count() -> None:
    """Asynchronous, over a slow link: another push is applied while the parameters leave."""
    slow = wb.Network(links={(0, 1): wb.Link(bandwidth="10 Mbit/s")})
    fields: dict[str, Any] = {"ranks": 3, "optimizer": "sgd", "iterations": 10, "network": slow}
    (server, *_) = held(options={"consistency": "asp"}, **fields).values()
    assert server > (1 + 2) * L and server % L == 0


def test_a_server_that_holds_too_much_ends_the_run_and_says_what_it_holds() -> None:
    exp = lenet(strategy="parameter_server", ranks=4, optimizer="sgd", memory_limit="600 kB")
    result = wb.run(exp).wait(timeout=120, check=False)
    assert isinstance(result.error, wb.MemoryLimit)
    assert "rank 0 holds 0.987 MB" in str(result.error)
    assert "gradients 0.740 MB" in str(result.error) and "more servers" in str(result.error)


@pytest.mark.full
def test_processor_time_is_that_of_each_rank() -> None:
    """A worker computes gradients, a server adds them: it needs less, and neither needs nothing."""
    result = wb.run(lenet(strategy="parameter_server", ranks=3, iterations=60)).wait(timeout=120)
    server, *workers = (result.processor_seconds[rank] for rank in range(3))
    assert 0 < server < min(workers)

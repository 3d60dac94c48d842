"""Links with real names: what theory makes of them."""

from __future__ import annotations

import pytest

import workbench as wb
from workbench.experiment.named_links import NAMED
from workbench.theory import cost_model


def cost(name: str) -> cost_model.Cost:
    link = wb.Link.named(name)
    return cost_model.Cost(link.latency_ns / 1e9, 1 / link.bytes_per_second)


@pytest.mark.parametrize("name", NAMED)
def test_each_is_a_link_that_a_network_takes(name: str) -> None:
    link = wb.Link.named(name)
    network = wb.Network(latency=link.latency, bandwidth=link.bandwidth)
    assert network.link(0, 1) == link and link.latency_ns > 0
    assert wb.Network(levels=(2, 2), between=link).link(0, 2) == link


def test_they_are_as_fast_as_their_data_sheets_say() -> None:
    bytes_per_second = {name: wb.Link.named(name).bytes_per_second for name in NAMED}
    assert bytes_per_second["1 GbE"] == 125e6
    assert bytes_per_second["InfiniBand NDR"] == 50e9 and bytes_per_second["NVLink"] == 450e9
    assert bytes_per_second["100 GbE"] == bytes_per_second["100 GbE, RDMA"]
    generations = [bytes_per_second[f"InfiniBand {one}"] for one in ("EDR", "HDR", "NDR", "XDR")]
    assert generations == [12.5e9 * 2**at for at in range(4)], "twice as fast each time"


def test_rdma_moves_the_boundary_between_steps_and_bytes() -> None:
    tcp, rdma = (
        cost_model.crossover("butterfly", "ring", 8, cost(name))
        for name in ("100 GbE", "100 GbE, RDMA")
    )
    assert tcp / rdma == pytest.approx(15 / 3), "a fifth of the latency: a fifth of the size"


def test_another_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(wb.SpecError, match=r"'Infiniband': there is no such link.*InfiniBand NDR"):
        wb.Link.named("Infiniband")
    with pytest.raises(wb.SpecError, match="'100 GbE', '100 GbE, RDMA', "):
        wb.Link.named("2 GbE")
    with pytest.raises(wb.SpecError, match="name"):
        wb.Link.named(3)  # type: ignore[arg-type]

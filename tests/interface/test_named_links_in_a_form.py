"""Links with real names in a form: picked where a quantity or a link is asked for."""

from __future__ import annotations

import pytest

import workbench as wb
from workbench.experiment.named_links import NAMED
from workbench.interface import form


@pytest.mark.parametrize("name", NAMED)
def test_a_name_stands_for_a_link_and_is_shown_again(name: str) -> None:
    link = wb.Link.named(name)
    exp = form.experiment(
        {
            "ranks": 4,
            "network.levels": "2 x 2",
            "network.between": name,
            "network.links": f"0->1: {name}\n1->0: down",
        }
    )
    assert exp.network.between == exp.network.links[0, 1] == link
    shown = form.values(exp)
    assert shown["network.between"] == name
    assert shown["network.links"] == f"0->1: {name}\n1->0: down"
    assert form.experiment(form.values(exp)) == exp


def test_a_name_gives_a_latency_or_a_bandwidth() -> None:
    values = {"network.latency": "10 GbE", "network.bandwidth": "1 GbE", "network.nic": "PCIe"}
    network = form.experiment(values).network
    assert network.latency == NAMED["10 GbE"][0]
    assert (network.bandwidth, network.nic) == ("1 Gbit/s", "504 Gbit/s")


def test_groups_of_hosts_have_a_link_each() -> None:
    values = {"ranks": 8, "network.levels": "2 x 2 x 2", "network.between": "NVLink; 100 GbE, RDMA"}
    between = form.experiment(values).network.between
    assert between == (wb.Link.named("NVLink"), wb.Link.named("100 GbE, RDMA"))


def test_the_names_can_be_picked() -> None:
    fields = {one.name: one for one in form.fields()}
    for name in ("network.latency", "network.bandwidth", "network.between", "network.nic"):
        assert {*NAMED} <= {*fields[name].suggestions}
        assert str(fields[name].default or "") in fields[name].suggestions, "what is there at first"
    assert "0->1: InfiniBand NDR" in fields["network.links"].phrases

"""Hosts in a form: as people type them, and what cannot be, beside its field."""

from __future__ import annotations

from typing import Any

import pytest

import workbench as wb
from workbench.interface import form
from workbench.interface.form import FormError


def test_hosts_as_people_type_them() -> None:
    for typed in ("4 x 2", "4x2", "4, 2", "4 × 2"):
        exp = form.experiment({"ranks": 8, "network.levels": typed, "network.between": "1 ms"})
        assert exp.network == wb.Network(levels=(4, 2), between=wb.Link(latency="1 ms"))
    racks = form.experiment(
        {"ranks": 8, "network.levels": "2 x 2 x 2", "network.between": "1 ms; 2 ms, 1 Gbit/s"}
    )
    shown = form.values(racks)
    assert shown["network.levels"] == "2 x 2 x 2"
    assert shown["network.between"] == "1 ms; 2 ms, 1 Gbit/s"
    assert form.experiment(shown) == racks
    assert form.from_link(form.to_link(racks)) == racks


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"network.levels": "2 by 2"}, "network.levels", "does not name hosts. Write ranks of a"),
        ({"network.levels": "3 x 2"}, "network.levels", "are 6 ranks, and ranks=4. Such as 2 x 2"),
        ({"network.levels": "0 x 2"}, "network.levels", "every number is 1 or more"),
        ({"network.between": "1 ms"}, "network.between", "share a host, such as two hosts of four"),
        (
            {"network.levels": "2 x 2", "network.between": "1 ms; 2 ms"},
            "network.between",
            "has 2 links, and 2 hosts of 2 ranks need 1",
        ),
        (
            {"network.levels": "2 x 2", "network.between": "5"},
            "network.between",
            "has no unit",
        ),
        (
            {"network.levels": "2 x 2", "network.between": "fast"},
            "network.between",
            "'fast' is neither a latency nor a bandwidth. Write latency, bandwidth: 1 ms",
        ),
    ],
)
def test_what_cannot_be_is_said_beside_its_field(
    values: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(FormError) as raised:
        form.experiment({"ranks": 4, **values})
    assert list(raised.value.fields) == [field]
    assert words in raised.value.fields[field]

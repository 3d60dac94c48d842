"""Changes of links in the event table, in columns."""

from __future__ import annotations

import math

import pytest

from workbench.shared_memory.link_state import LinkState
from workbench.store.link_faults import direction, link_of_row, row_values


@pytest.mark.parametrize(
    "link",
    [LinkState(20_000_000, 800_000, False), LinkState(0, 0, False), LinkState(5_000, 0, True)],
    ids=["slow", "restored", "cut"],
)
def test_a_row_says_what_a_link_is(link: LinkState) -> None:
    name, value, nbytes = row_values(link)
    assert link_of_row(name, direction(3, 12), value, nbytes) == {(3, 12): link}
    assert link_of_row("kill", "", math.nan, -1) is None
    assert link_of_row("link", "default", 0.0, -1) is None

"""What the page of partitions takes from a browser, and what it costs."""

from __future__ import annotations

import itertools
import statistics
import time

import pytest

from tests.pairwise import first
from workbench.common.errors import SpecError
from workbench.interface.app.partition import MOST, START, PartitionPage, _checked
from workbench.studies.partition import SAMPLERS

MOST_MS = 200  # where others have the core too: alone the most takes a quarter of it


@pytest.mark.parametrize("sampler", first(1, SAMPLERS))
def test_no_place_of_the_sliders_costs_much(sampler: str) -> None:
    page, count = PartitionPage(), 0
    ends = [
        [(name, value) for value in sorted({1, START[name], MOST[name] // 8, MOST[name]})]
        for name in ("samples", "batch_size", "ranks", "epochs")
    ]
    for chosen in itertools.product(*ends):
        try:
            options = _checked(START | {"sampler": sampler} | dict(chosen))
        except SpecError as error:
            assert "are the most that this page draws: take fewer" in str(error)
            continue
        count += 1
        spent = []
        for _ in range(5):
            began = time.thread_time()
            page.show(options)
            spent.append((time.thread_time() - began) * 1000)
            if spent[0] < MOST_MS:
                break
        assert statistics.median(spent) < MOST_MS, (chosen, spent)
    assert count > 100, "the sliders are there to be moved"

"""The verdict of a comparison follows from its runs' numbers, and from nothing else."""

from __future__ import annotations

from typing import Any

import pytest

import workbench as wb
from workbench.analysis.measures import MEASURES
from workbench.analysis.verdict import NOUNS, verdict
from workbench.experiment.traits import known_traits
from workbench.presets.catalogue import comparisons


def runs(measure: str, **values: float | None) -> dict[str, dict[str, Any]]:
    return {name: {"iterations": 20, measure: value} for name, value in values.items()}


@pytest.mark.parametrize("order", [1, -1])
def test_the_best_and_the_worst_are_named_in_any_order(order: int) -> None:
    each = [*runs("step_ms", ring=41.2, tree=60.0, naive=120.3, auto=None).items()]
    assert verdict(dict(each[::order]), ["step_ms"]) == (
        "By time per step, ring comes first with 41.20 ms, and naive last with 120.30 ms, "
        "2.92 times as much."
    )


def test_more_is_better_of_what_should_grow() -> None:
    words = verdict(runs("return_end", apex=0.2, gorila=0.8), ["return_end"])
    assert words == "By return at the end, gorila comes first with 0.8, and apex last with 0.2."


def test_runs_that_are_close_are_not_ranked() -> None:
    words = verdict(runs("step_ms", a=100.0, b=104.0), ["step_ms"])
    assert "no run comes first: all are within 5 %, from 100.00 ms to 104.00 ms." in words


def test_ways_are_compared_in_each_setting() -> None:
    values = {
        **runs("step_ms", **{"ring, 2 ranks": 13.0, "naive, 2 ranks": 12.0}),
        **runs("step_ms", **{"ring, 4 ranks": 20.0, "naive, 4 ranks": 20.1}),
        **runs("step_ms", **{"ring, 8 ranks": 41.0, "naive, 8 ranks": 120.0}),
    }
    assert verdict(values, ["step_ms"]) == (
        "By time per step, naive comes first with 2 ranks, no way comes first with 4 ranks, ring "
        "comes first with 8 ranks; the widest gap is with 8 ranks, 41.00 ms for ring and "
        "120.00 ms for naive."
    )
    del values["ring, 2 ranks"]  # it failed: no pairs any more
    assert "naive, 2 ranks comes first with 12.00 ms, and naive, 8" in verdict(values, ["step_ms"])


def test_totals_of_runs_that_did_not_do_as_much_decide_nothing() -> None:
    several = {"a": {"iterations": 5, "bytes_all": 10}, "b": {"iterations": 9, "bytes_all": 90}}
    assert verdict(several, ["bytes_all"]) == "" == verdict({}, ["step_ms"])
    several["a"]["iterations"] = 9
    assert verdict(several, ["bytes_all"]).endswith("and b last with 90 B, 9 times as much.")


def test_every_comparison_is_decided_by_measures_that_its_runs_have() -> None:
    assert {*NOUNS} <= {*MEASURES} and len(comparisons()) >= 30
    for name, one in comparisons().items():
        assert one.measures and {*one.measures} <= {*NOUNS}, name
        assert repr(one.measures[0]) in one.code
        for exp in one.make().values() if "bubble" in one.measures else ():
            assert known_traits(exp.strategy).messages == "stages", name
    with pytest.raises(wb.SpecError, match="no verdict is by 'speed'"):
        verdict({}, ["speed"])

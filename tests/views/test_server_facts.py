"""The page is told the consistency rule as the spec has it, defaults included."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench as wb
from workbench.analysis import servers
from workbench.experiment.checks import prepare
from workbench.strategies.parameter_server import Config
from workbench.views.pages.facts import facts


def facts_of_server(**options: object) -> dict[str, object]:
    exp = wb.Experiment(strategy="parameter_server", ranks=6, options=options)
    return dict(facts({"experiment": exp.to_yaml()})["server"])


@pytest.mark.parametrize(
    ("options", "low", "high"),
    [
        ({}, 0, 0),
        ({"consistency": "ssp"}, 3, 3),
        ({"consistency": "ssp", "staleness": 0}, 0, 0),
        ({"consistency": "asp"}, None, None),
        ({"consistency": "dssp", "staleness": 2, "staleness_max": 8}, 2, 8),
        ({"consistency": "dssp", "dssp_mode": "paper"}, 3, None),
    ],
)
def test_how_far_a_worker_may_lead(
    options: dict[str, object], low: int | None, high: int | None
) -> None:
    server = facts_of_server(**options)
    assert (server["low"], server["high"]) == (low, high)
    assert server["servers"] == 1 and server["models"] == 1 and server["words"] == ""


def test_what_becomes_of_stale_gradients_is_a_badge() -> None:
    dropped = facts_of_server(consistency="asp", stale_gradients="drop", drop_above=5)
    assert (dropped["drop_above"], dropped["words"]) == (5, "stale > 5 dropped")
    scaled = facts_of_server(consistency="asp", stale_gradients="scale")
    assert scaled["words"] == "stale gradients scaled"


def test_defaults_are_the_strategys_own() -> None:
    config = Config()
    server = facts_of_server()
    assert server["servers"] == config.servers and server["models"] == config.models
    assert server["consistency"] == config.consistency
    assert facts_of_server(consistency="ssp")["low"] == config.staleness
    assert facts_of_server(consistency="dssp")["high"] == config.staleness_max


def test_what_workers_push_is_named() -> None:
    for frequency, once_per in (("batch", "minibatch"), ("epoch", "epoch")):
        exp = wb.Experiment(strategy="elephas", ranks=3, options={"frequency": frequency})
        server = facts({"experiment": exp.to_yaml(), **prepare(exp)})["server"]
        assert (server["pushes"], server["once_per"]) == ("weight difference", once_per)
        assert server["mode"] == "asynchronous"
    assert facts_of_server()["pushes"] == "gradient"


def test_others_have_no_server() -> None:
    assert facts({"experiment": "strategy: ddp\nranks: 2\n"})["server"] is None
    assert facts({})["server"] is None


def test_a_rule_of_the_users_own_has_no_bound_that_is_known() -> None:
    spec = "strategy: parameter_server\nranks: 3\noptions: {consistency: {name: mine}}\n"
    server = facts({"experiment": spec})["server"]
    assert (server["consistency"], server["low"]) == ("mine", None)


def test_a_rule_of_the_users_own_is_told_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "class Mine:\n    bound = lead = 4\n    def may_start(self, w, c, clocks): return True\n"
    )
    options = {"consistency": f"{file}:Mine"}
    run = wb.run(wb.Experiment(strategy="parameter_server", ranks=3, iterations=2, options=options))
    run.wait(60)
    server = facts(run.store.metadata)["server"]
    assert (server["low"], server["high"], server["together"]) == (4, 4, False)
    assert servers.bound(run.store.metadata) == 4

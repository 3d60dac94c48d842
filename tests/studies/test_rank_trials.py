"""One rank more, one less, another link: what is offered; a picture goes from a run to the next,
then to both.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

import polars as pl
import pytest

import workbench as wb
from tests.live import LONG, PATIENCE, lenet, training, until
from tests.page import Client
from workbench.analysis.curves import select
from workbench.common.errors import WorkbenchError
from workbench.studies.changed_experiment import (
    MOST_RANKS,
    knobs,
    names_of,
    offer,
    with_knob,
    with_link,
)
from workbench.studies.rank_trials import MOST_POINTS, SAME, RankTrials, as_it_was
from workbench.views.jupyter import Stage
from workbench.views.packing import Message
from workbench.views.pages.commands import obey

HELLO = {"type": "hello"}


def trials_shown(stage: Stage) -> tuple[Any, Any]:
    """Return the two runs that this picture has."""
    before, after = stage._page._trials._runs  # type: ignore[union-attr]
    return before, after


def listening(stage: Stage) -> Client:
    """Return what the front end of this stage gets."""
    client, one_at_a_time = Client(), threading.Lock()

    def send(header: Any, buffers: Any = None) -> None:
        with one_at_a_time:  # as the widget's own does
            client.send(Message(header, bytes(buffers[0]) if buffers else b""))

    stage.send = send  # type: ignore[method-assign]
    stage._handle_custom_msg(HELLO, [])
    client.until(lambda: client.headers)
    return client


@pytest.mark.parametrize(
    ("fields", "more", "fewer", "words"),
    [
        ({"ranks": 4}, 5, 3, ""),
        ({"ranks": 1, "strategy": "sequential"}, 0, 0, "2 ranks cannot be: strategy 'sequential'"),
        ({"ranks": MOST_RANKS}, 0, MOST_RANKS - 1, "A run has 64 ranks at most."),
        (
            {"ranks": 4, "network": wb.Network(levels=(2, 2), between=wb.Link(latency="1 ms"))},
            0,
            0,
            "5 ranks cannot be: 2 hosts of 2 ranks are 4 ranks, and ranks=5.",
        ),
        (
            {"ranks": 4, "strategy": "pipeline", "task": "mlp_layers", "options": {"replicas": 2}},
            6,
            2,
            "5 ranks cannot be: each of options.replicas = 2 replicas needs",
        ),
    ],
)
def test_the_spec_decides_what_is_offered_and_a_refusal_is_one_sentence(
    fields: dict[str, Any], more: int, fewer: int, words: str
) -> None:
    exp = wb.Experiment(**fields)
    offers = offer(exp, 1), offer(exp, -1)
    assert [each["ranks"] for each in offers] == [more, fewer]
    assert offers[0]["words"].startswith(words) and "\n" not in offers[0]["words"]
    for each in offers:
        if each["ranks"]:
            assert exp.replace(ranks=each["ranks"]).ranks == each["ranks"]


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"ranks": 4}, ["ranks", "all_reduce"]),
        ({"ranks": 3, "all_reduce": "tree"}, ["ranks", "all_reduce"]),
        (
            {"ranks": 2, "strategy": "pipeline", "task": "mlp_layers"},
            ["ranks", "microbatches"],
        ),
        ({"ranks": 4, "strategy": "parameter_server"}, ["ranks"]),
        ({"ranks": 1, "strategy": "sequential"}, []),
    ],
)
def test_a_knob_has_the_values_that_can_be_and_both_runs_are_called_by_it(
    fields: dict[str, Any], names: list[str]
) -> None:
    exp = wb.Experiment(**fields)
    assert [knob["name"] for knob in knobs(exp)] == names
    for knob in knobs(exp):
        assert knob["now"] in knob["values"] and len(knob["values"]) > 1
        for value in set(knob["values"]) - {knob["now"]}:
            after = with_knob(exp, **{knob["name"]: value})
            called = names_of(exp, after)
            assert called and called == (names_of(after, exp) or ())[::-1]
            assert str(value) in called[1] and str(knob["now"]) in called[0]
    for wrong in ({"ranks": "many"}, {"ranks": 0}, {"seed": 1}, {"ranks": 2, "all_reduce": "tree"}):
        with pytest.raises(WorkbenchError):
            with_knob(exp, **wrong)


SLOW = {(0, 1): wb.Link(latency="5 ms", bandwidth="1 Gbit/s")}


@pytest.mark.parametrize(
    ("network", "args", "names"),
    [
        (
            {},
            {"bandwidth": "10 Mbit/s"},
            ("link 0 → 1 unlimited", "link 0 → 1 at 10 Mbit/s"),
        ),
        (
            {"links": SLOW},
            {"bandwidth": "10 Mbit/s"},
            ("link 0 → 1 at 5 ms, 1 Gbit/s", "link 0 → 1 at 5 ms, 10 Mbit/s"),
        ),
        (
            {"links": SLOW},
            {"latency": "0 ms", "bandwidth": "unlimited"},
            ("link 0 → 1 at 5 ms, 1 Gbit/s", "link 0 → 1 unlimited"),
        ),
        (
            {"bandwidth": "1 Gbit/s"},
            {"latency": "20us", "both": True},
            ("link 0 ↔ 1 at 1 Gbit/s", "link 0 ↔ 1 at 20 µs, 1 Gbit/s"),
        ),
    ],
)
def test_of_another_link_what_is_not_named_stays_and_both_runs_are_called_by_it(
    network: dict[str, Any], args: dict[str, Any], names: tuple[str, str]
) -> None:
    before = wb.Experiment(ranks=4, network=wb.Network(**network))
    after = with_link(before, 0, 1, **args)
    assert names_of(before, after) == names
    assert names_of(after, before) == names[::-1]
    assert after.network.link(1, 2) == before.network.link(1, 2)
    assert after.replace(network=before.network) == before
    assert all(link.latency != "0 ms" for link in after.network.links.values()), "as usual: unsaid"
    with pytest.raises(WorkbenchError, match="already"):
        with_link(after, 0, 1, **args)


def test_runs_that_differ_in_more_than_one_thing_have_no_names() -> None:
    exp = wb.Experiment(ranks=4)
    slow = with_link(exp, 0, 1, latency="1 ms")
    for other in (
        exp,
        exp.replace(seed=7),
        slow.replace(ranks=5),
        slow.replace(iterations=3),
        with_link(slow, 1, 2, latency="1 ms"),
        with_link(slow, 1, 0, latency="2 ms"),
    ):
        assert names_of(exp, other) is None
    for wrong in ({"target": 9}, {"target": 0}, {"bandwidth": "much"}, {"source": "all"}):
        with pytest.raises(WorkbenchError):
            with_link(exp, **{"source": 0, "target": 1, "latency": "1 ms", **wrong})


def test_a_link_that_was_changed_by_hand_runs_again_beside_what_was_before_the_change() -> None:
    run = training(wb.run(lenet(iterations=LONG)))
    stage = run.view("collectives")
    client = listening(stage)
    assert client.last["run"]["trials"]["links"]

    def ask(verb: str, **args: Any) -> Any:
        message = {"type": "do", "id": (verb, len(args)), "verb": verb, "args": args}
        stage._handle_custom_msg(message, [])
        client.until(lambda: message["id"] in client.answers, PATIENCE)
        return client.answers.pop(message["id"])

    slower = {"source": 0, "target": 1, "bandwidth": "50 Mbit/s"}
    assert "already" in ask("run_with_link", source=0, target=1, latency="0 ms")["words"]
    assert ask("link", **slower)["ok"]
    training(run, run.iteration + 3)
    assert "This run ends" in ask("run_with_link", **slower)["words"]
    names = ["link 0 → 1 unlimited", "link 0 → 1 at 50 Mbit/s"]
    client.until(lambda: client.last["run"]["trials"]["names"] == names, PATIENCE)
    client.until(lambda: client.last["counters"]["iteration"] > 3, PATIENCE)
    before, after = trials_shown(stage)
    change = before.events.filter(pl.col("name") == "link")["start_ns"].min()
    assert before.events["end_ns"].max() > change >= as_it_was(before).events["end_ns"].max()
    assert as_it_was(after) is after
    assert ask("stop")["ok"]
    client.until(lambda: client.last["run"].get("pair"), PATIENCE)
    pair = client.last["run"]["pair"]
    assert [pair[side]["label"] for side in ("left", "right")] == names
    assert [len(pair[side]["own"].get("emulated", [])) for side in pair] == [0, 1]
    assert ask("undo_trial")["ok"]
    client.until(lambda: client.last["run"]["trials"]["names"] == [])
    stage.close()


def test_a_live_run_ends_the_next_one_runs_and_both_are_side_by_side_until_undone() -> None:
    run = training(wb.run(lenet(iterations=LONG)))
    stage = run.view("collectives")
    client = listening(stage)
    trials = client.last["run"]["trials"]
    assert trials["more"]["ranks"] == 3 and trials["names"] == []

    ids = map(str, itertools.count())

    def ask(verb: str, **args: Any) -> Any:
        token = next(ids)
        stage._handle_custom_msg({"type": "do", "id": token, "verb": verb, "args": args}, [])
        return client.answers.pop(token)

    assert not ask("run_with", ranks="many")["ok"]
    answer = ask("run_with", ranks=3)
    assert answer["ok"] and "This run ends" in answer["words"], answer
    client.until(
        lambda: client.last["run"]["ranks"] == 3 and client.last["counters"]["iteration"] > 5,
        PATIENCE,
    )
    assert run.done and run.result.ok
    assert client.last["run"]["trials"]["names"] == ["2 ranks", "3 ranks"]
    ghosts = [header["run"]["ghost"] for header in client.headers if "ghost" in header["run"]]
    assert [ghost["name"] for ghost in ghosts] == ["2 ranks"], "once, with the first message"
    before = select(run.store, "loss").group_by("iteration").agg(pl.mean("loss"))
    assert {tuple(point) for point in ghosts[0]["losses"]} <= set(before.rows())
    assert len(ghosts[0]["losses"]) <= MOST_POINTS
    stage._handle_custom_msg({"type": "do", "id": 1, "verb": "stop", "args": {}}, [])
    client.until(lambda: client.last["run"].get("pair"), PATIENCE)
    pair = client.last["run"]
    assert [pair["pair"][side]["label"] for side in ("left", "right")] == ["2 ranks", "3 ranks"]
    assert (pair["scene"], pair["trials"]["at"]) == ("pair", "both")
    assert "with 2 ranks" in pair["trials"]["words"]
    assert ask("show_trial", which=0)["ok"]
    client.until(lambda: client.last["run"]["ranks"] == 2 and not client.last["run"].get("pair"))
    assert not ask("show_trial", which=7)["ok"]
    assert ask("undo_trial")["ok"]
    client.until(lambda: client.last["run"]["trials"]["names"] == [])
    assert not ask("undo_trial")["ok"]
    assert ask("run_with")["ok"], "the same experiment once more"
    client.until(lambda: client.last["run"]["trials"]["names"] == [*SAME], PATIENCE)
    before_again, again = trials_shown(stage)
    assert before_again is run and again.experiment == run.experiment
    again.stop()
    stage.close()


def test_a_run_that_cannot_start_is_said_and_the_picture_stays() -> None:
    run = wb.run(lenet(iterations=3))
    run.wait(60)
    turns: list[Any] = []

    class Host:
        def begin(self, exp: wb.Experiment, name: str) -> Any:
            raise WorkbenchError("All places are taken.\nCome back later.")

        def turn(self, run: Any, trials: RankTrials) -> None:
            turns.append(run)

        def refresh_facts(self) -> None:
            turns.append("facts")

    trials = RankTrials(Host(), run)
    trials.obey("run_with", {"ranks": 3})
    until(lambda: turns, 20, "its refusal")
    assert turns == ["facts"] and trials.facts["refused"] and trials.facts["starting"] == ""
    assert trials.facts["words"] == "All places are taken."
    assert trials.facts["names"] == []


def test_a_page_that_only_watches_starts_nothing() -> None:
    run = wb.run(lenet(iterations=3))
    run.wait(60)
    stage = Stage(run, readonly=True)
    client = listening(stage)
    assert client.last["run"]["trials"] is None
    message = {"type": "do", "id": 1, "verb": "run_with", "args": {"ranks": 3}}
    stage._handle_custom_msg(message, [])
    assert client.answers[1]["words"] == "No run can be started from this page."
    assert not obey(run, message)["ok"]  # it is not a command to ranks
    stage.close()

"""One rank more, one less: what is offered; a picture goes from a run to the next, then to both."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import workbench as wb
from tests.live import LONG, PATIENCE, lenet, training, until
from tests.page import Client
from workbench.common.errors import WorkbenchError
from workbench.studies.rank_trials import MOST_RANKS, RankTrials, offer
from workbench.views.jupyter import Stage
from workbench.views.packing import Message
from workbench.views.pages.commands import obey

HELLO = {"type": "hello"}


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


def test_a_live_run_ends_the_next_one_runs_and_both_are_side_by_side_until_undone() -> None:
    run = training(wb.run(lenet(iterations=LONG)))
    stage = run.view("collectives")
    client = listening(stage)
    trials = client.last["run"]["trials"]
    assert trials["more"]["ranks"] == 3 and trials["names"] == []

    def ask(verb: str, **args: Any) -> Any:
        stage._handle_custom_msg({"type": "do", "id": verb, "verb": verb, "args": args}, [])
        return client.answers.pop(verb)

    assert not ask("run_with_ranks", ranks="many")["ok"]
    answer = ask("run_with_ranks", ranks=3)
    assert answer["ok"] and "This run ends" in answer["words"], answer
    client.until(
        lambda: client.last["run"]["ranks"] == 3 and client.last["counters"]["iteration"] > 5,
        PATIENCE,
    )
    assert run.done and run.result.ok
    assert client.last["run"]["trials"]["names"] == ["2 ranks", "3 ranks"]
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
    stage.close()


def test_a_run_that_cannot_start_is_said_and_the_picture_stays() -> None:
    run = wb.run(lenet(iterations=3))
    run.wait(60)
    turns: list[Any] = []

    class Host:
        def begin(self, exp: wb.Experiment) -> Any:
            raise WorkbenchError("All places are taken.\nCome back later.")

        def turn(self, run: Any, trials: RankTrials) -> None:
            turns.append(run)

        def refresh_facts(self) -> None:
            turns.append("facts")

    trials = RankTrials(Host(), run)
    trials.obey("run_with_ranks", {"ranks": 3})
    until(lambda: turns, 20, "its refusal")
    assert turns == ["facts"] and trials.facts["refused"] and trials.facts["starting"] == 0
    assert trials.facts["words"] == "All places are taken."
    assert trials.facts["names"] == []


def test_who_only_watches_starts_nothing() -> None:
    run = wb.run(lenet(iterations=3))
    run.wait(60)
    stage = Stage(run, readonly=True)
    client = listening(stage)
    assert client.last["run"]["trials"] is None
    message = {"type": "do", "id": 1, "verb": "run_with_ranks", "args": {"ranks": 3}}
    stage._handle_custom_msg(message, [])
    assert client.answers[1]["words"] == "No run can be started from this page."
    assert not obey(run, message)["ok"]  # it is no command to ranks
    stage.close()

"""Runs that ``wb.lab()`` starts, without a browser: their charts, history and comparison."""

from __future__ import annotations

import threading

import ipywidgets as w
import pytest
from ipywidgets.widgets.widget import _instances

import workbench as wb
from tests.conftest import remains
from tests.interface.laboratory import small, threads, wait_for
from workbench.interface.laboratory.panel import Lab
from workbench.presets.catalogue import Compared, comparisons


def test_a_run_from_start_to_history(lab: Lab) -> None:
    small(lab)
    exp = lab.experiment
    lab.start()
    assert lab.run is not None and lab.run.experiment == exp
    wait_for(lambda: lab.start_button.disabled is False, "its end")
    assert "Done: 20 iterations in" in lab.status.value
    wait_for(lambda: len(lab.charts.figure.data[0].x) == 20, "all points")
    (past,) = lab.history
    assert past.title == "data_parallel, ring, 2 ranks"
    assert lab.past.ticked == [past]
    assert "finished" in lab.past._table.value
    lab.preset.value = "A slow link"
    lab.take(past)
    assert lab.experiment == exp


@pytest.mark.full
def test_a_parameter_server_has_fields_and_charts_of_its_own(lab: Lab) -> None:
    servers, bucket = (
        lab.sheet.entries[f"options.{name}"] for name in ("servers", "bucket_cap_mb")
    )
    assert servers.layout.display == bucket.layout.display == "none"
    assert lab.toggles["clocks"].layout.display == "none"
    lab.preset.value = "Server: SSP"
    assert servers.layout.display is None and bucket.layout.display == "none"
    servers.value = 4
    assert "options.servers = 4 leaves 0 workers" in lab.sheet.entries["ranks"].wrong
    lab.sheet.entries["options.placement"].value = "0.7, 0.3"
    assert "gives 2 shares" in lab.sheet.entries["options.placement"].wrong
    servers.value = 2
    lab.sheet.entries["iterations"].value = 20
    lab.start()
    wait_for(lambda: not lab.start_button.disabled, "its end")
    assert lab.run.experiment.options["placement"] == [0.7, 0.3]
    assert lab.toggles["clocks"].layout.display == ""
    assert lab.charts.names == ("loss", "communication", "clocks", "waiting")
    small(lab, strategy="data_parallel")
    lab.start()
    wait_for(lambda: not lab.start_button.disabled, "its end")
    assert lab.charts.names == ("loss", "communication")
    assert lab.toggles["clocks"].layout.display == "none"


@pytest.mark.full
def test_a_pipeline_has_fields_and_charts_of_its_own(lab: Lab) -> None:
    schedule, replicas = (lab.sheet.entries[f"options.{name}"] for name in ("schedule", "replicas"))
    assert schedule.layout.display == replicas.layout.display == "none"
    lab.preset.value = "Pipeline: backward is longer"
    assert schedule.layout.display is None and schedule.value == "1f1b"
    assert lab.sheet.entries["pad_compute"].value == "10 ms, 20 ms, 10 ms"
    replicas.value = 3
    assert "replicas = 3" in lab.sheet.entries["ranks"].wrong
    replicas.value = 1
    schedule.value = "zb_h1"
    lab.sheet.entries["iterations"].value = 2
    lab.start()
    wait_for(lambda: not lab.start_button.disabled, "its end")
    assert lab.run.experiment.options["schedule"] == "zb_h1"
    assert lab.charts.names == ("loss", "bubble", "activations")
    assert lab.toggles["stages"].layout.display == ""


def test_two_runs_are_compared(lab: Lab) -> None:
    for algorithm in ("ring", "naive"):
        small(lab, all_reduce=algorithm)
        lab.start()
        wait_for(lambda: not lab.start_button.disabled, "its end")
    assert len(lab.past.ticked) == 2
    wait_for(lambda: len(lab.charts.figure.data) == 3 + 4, "their losses")
    first = next(iter(lab.history))
    lab.past._rows[first.id][1].value = False
    assert [past.number for past in lab.past.ticked] == [2]
    assert len(lab.charts.figure.data) == 3
    lab.show(first)
    assert lab.stage._page.run is first.run


@pytest.mark.full
def test_a_comparison_runs_one_after_another_and_ends_side_by_side(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lab.questions.choice.options == tuple(comparisons())
    assert lab.questions.compared.words.split("'")[0] in lab.questions._words.value
    small(lab, iterations=5)
    ring = lab.experiment
    question = Compared(
        "Two", "?", lambda: {"ring": ring, "naive": ring.replace(all_reduce="naive")}
    )
    monkeypatch.setattr(lab.questions, "known", {lab.questions.choice.value: question})
    lab.questions.button.click()
    lab.start()
    assert lab.questions.button.disabled and "stop it first" in lab.status.value
    wait_for(lambda: not lab.start_button.disabled, "its end")
    assert "Two: By time per step, " in lab.status.value
    assert "All " in lab.past._table.value and lab.past._table.value.count("<td>ranks</td>") == 1
    assert [past.title for past in lab.past.ticked] == ["ring", "naive"]
    assert [past.experiment.all_reduce for past in lab.history] == ["ring", "naive"]
    assert lab.stage._page.run is lab.run and lab.run.store.metadata["question"] == "?"
    assert "2 · naive</th>" in lab.past._table.value and "wb-line-key" in lab.past._table.value
    assert " ★" in lab.past._table.value
    wait_for(lambda: len(lab.charts.figure.data) == 3 + 2 + 4, "what decides, and their losses")
    long = Compared(
        "Long", "?", lambda: {"a": ring.replace(iterations=100_000, pad_compute="20 ms"), "b": ring}
    )
    lab._start_comparison(long)
    wait_for(lambda: "Run 1 of 2, a: iteration" in lab.status.value, "the first run")
    assert lab.stop_button.layout.display == "", "one Stop for all of its runs"
    lab.stop_button.click()
    wait_for(lambda: not lab.start_button.disabled, "its end")
    assert [past.title for past in lab.past.ticked] == ["a"]
    small(lab, iterations=5)
    lab.start()
    wait_for(lambda: not lab.start_button.disabled, "its end")
    wait_for(lambda: len(lab.past.ticked) == 2, "the later run, ticked beside it")
    later = lab.past.ticked[-1]
    *_, rename, delete = lab.past._rows[later.id][0].children
    rename.click()
    lab.past._rows[later.id][0].children[1].value = "Mine <b>"
    assert "4 · Mine &lt;b&gt;</th>" in lab.past._table.value
    rename.click()
    *_, cancel = lab.past._rows[later.id][0].children
    cancel.click()
    assert lab.past._rows[later.id][0].children[-1] is delete and later.title == "Mine <b>"
    delete.click()
    assert [past.title for past in lab.past.ticked] == ["a"]
    w.Widget.get_manager_state()  # what a page that is loaded again asks for: nothing half closed
    before = len(_instances)
    lab.past.refresh()
    assert len(_instances) == before, "a look at the runs makes no widget"


def test_stop_ends_it_and_another_one_may_start(lab: Lab) -> None:
    small(lab, iterations=100_000, pad_compute="20 ms")
    lab.start()
    assert lab.start_button.disabled and not lab.stop_button.disabled
    first = lab.run
    wait_for(lambda: first.iteration > 2, "iterations")
    lab.start()
    assert lab.run is first and "stop it first" in lab.status.value
    assert lab.stop_button.layout.display == "none", "the stage has the one Stop"
    lab.stop()
    wait_for(lambda: not lab.start_button.disabled, "its end")
    assert "Stopped, 100,000 were asked for" in lab.status.value
    small(lab)
    lab.start()
    assert lab.run is not first
    wait_for(lambda: not lab.start_button.disabled, "its end")


def test_a_run_that_the_stage_begins_as_one_ends_can_be_stopped(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words about the end of the first run come late: the second one has begun."""
    say = lab._say

    def late(words: str, **more: bool) -> None:
        if "Done" in words and lab.run is first:
            small(lab, iterations=100_000, pad_compute="20 ms")
            lab._on_start({})
        say(words, **more)

    small(lab)
    lab.start()
    first, watcher = lab.run, lab._watcher
    monkeypatch.setattr(lab, "_say", late)
    wait_for(lambda: lab.run is not first and not watcher.is_alive(), "the second run")
    assert lab.start_button.disabled and not lab.stop_button.disabled
    lab.stop()
    wait_for(lambda: not lab.start_button.disabled, "its end")


def test_a_run_that_fails_says_why(lab: Lab) -> None:
    small(lab, faults="kill rank 1 after 5 iterations")
    lab.start()
    wait_for(lambda: not lab.start_button.disabled, "its end")
    assert "rank 1" in lab.status.value and "wb-refused" in lab.status.value
    assert lab.past.ticked[0].state == "failed"
    assert lab.sheet.values["faults"] == "kill rank 1 after 5 iterations"


def test_the_stage_can_start_a_run(lab: Lab) -> None:
    small(lab)
    sent: list[dict] = []
    lab.stage.send = lambda header, buffers=None: sent.append(header)
    lab.stage._hear(None, {"type": "hello"}, [])
    assert sent[-1]["state"] == "empty"
    lab.stage._hear(None, {"type": "do", "id": 1, "verb": "start"}, [])
    assert any(one["type"] == "said" and one["id"] == 1 and one["ok"] for one in sent)
    wait_for(lambda: any(one.get("reset") and one["run"]["ranks"] == 2 for one in sent), "it")
    wait_for(lambda: not lab.start_button.disabled, "its end")
    lab.sheet.entries["ranks"].value = 0
    lab.stage._hear(None, {"type": "do", "id": 2, "verb": "start"}, [])
    wait_for(lambda: any(one.get("id") == 2 and not one["ok"] for one in sent), "its refusal")


def test_closing_it_ends_what_it_still_runs() -> None:
    others = threading.enumerate()
    lab = wb.lab()
    small(lab, iterations=100_000, pad_compute="20 ms")
    lab.start()
    run = lab.run
    wait_for(lambda: run.iteration > 2, "iterations")
    lab.close()
    run.wait(120)
    assert remains(lambda: threads(others), 10) == []
    lab.start()
    assert lab.run is run and "is closed" in lab.status.value

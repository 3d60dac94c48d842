"""``wb.lab()`` without a browser: the form's widgets, runs that it starts, threads that end; and in
a real kernel.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import ipywidgets as w
import pytest
from ipywidgets.widgets.widget import _instances
from jupyter_client.manager import start_new_kernel

import workbench as wb
from tests.conftest import remains
from workbench.experiment.spec import Experiment
from workbench.interface import form
from workbench.interface.form import NO_CODE
from workbench.interface.laboratory.panel import Lab
from workbench.presets.catalogue import Compared, comparisons

OURS = ("workbench charts", "workbench lab", "workbench page", "workbench run")


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name in OURS]


@pytest.fixture
def lab() -> Iterator[Lab]:
    laboratory = wb.lab()
    yield laboratory
    laboratory.close()
    assert remains(threads, 20) == [], "threads outlived the laboratory"


def wait_for(look: Callable[[], object], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline, f"not seen within {seconds:.0f} s: {what}"
        time.sleep(0.02)


def small(lab: Lab, **values: object) -> None:
    """Fill in a run that is short."""
    for name, value in {"ranks": 2, "iterations": 20, "batch_size": 16, **values}.items():
        lab.sheet.entries[name].value = value


# ---- the form


def test_it_begins_with_the_first_preset_and_its_code(lab: Lab) -> None:
    assert repr(lab) == "Lab()"
    assert lab.preset.value == next(iter(form.presets()))
    assert lab.code.text == form.as_program(Experiment())
    assert lab.experiment == Experiment()
    assert lab.stop_button.disabled and not lab.start_button.disabled


@pytest.mark.full
def test_a_page_whose_server_stands_still_loses_no_widget() -> None:
    """Beyond a thousand messages a kernel drops them. Each widget is one, changes are some more."""
    before = len(_instances)
    lab = wb.lab()
    models = len(_instances) - before
    lab.close()
    assert models < 700
    w.Widget.get_manager_state()


def test_every_preset_fills_the_form(lab: Lab) -> None:
    """Each after the other: none leaves anything of its own behind."""
    for name in reversed(form.presets()):  # it begins with the first one
        preset = lab.presets[name]
        lab.preset.value = name
        assert lab.experiment == preset.experiment, name
        assert lab.code.text == form.as_program(preset.experiment), name
        assert preset.words.split("'")[0] in lab.preset_words.value, name
        assert lab.reset.disabled, name


def test_a_change_shows_in_the_code_and_can_be_taken_back(lab: Lab) -> None:
    assert lab.back.disabled
    lab.sheet.entries["ranks"].value = 3
    lab.sheet.entries["network.links"].value = "0->1: 5 ms"
    assert lab.experiment.ranks == 3
    assert "ranks=3" in lab.code.text and 'wb.Link(latency="5 ms")' in lab.code.text
    lab.preset.value = "A slow link"
    assert lab.experiment.ranks == 4
    lab.undo()
    assert (lab.preset.value, lab.experiment.ranks) == ("Ring of four", 3)
    lab.undo()
    assert lab.experiment == Experiment(ranks=3)
    lab.undo()
    assert lab.experiment == Experiment() and lab.back.disabled
    lab.undo()


def test_reset_goes_back_to_the_preset_and_can_be_taken_back(lab: Lab) -> None:
    lab.preset.value = "A slow link"
    lab.sheet.entries["iterations"].value = 7
    assert not lab.reset.disabled
    lab.reset.click()
    assert lab.experiment.iterations == 30 and lab.reset.disabled
    lab.undo()
    assert lab.experiment.iterations == 7


def test_a_list_takes_a_path_and_another_value_and_lines_are_picked(
    lab: Lab, tmp_path: Path
) -> None:
    algorithm, graph, faults = (
        lab.sheet.entries[name] for name in ("all_reduce", "options.graph", "faults")
    )
    path = tmp_path / "mine.py"
    path.write_text("def mine(comm, x):\n    return x\n")
    assert algorithm.other.layout.display == "none"
    assert {one.input.layout.display for one in lab.sheet.entries.values()} == {None}, "seen"
    algorithm.input.value = dict(algorithm.input.options)["a path …"]
    assert algorithm.other.layout.display == ""
    algorithm.other.value = f"{path}:mine"
    assert lab.experiment.all_reduce == f"{path}:mine" and "mine.py:mine" in lab.code.text
    algorithm.input.value = "naive"
    assert lab.experiment.all_reduce == "naive" and algorithm.other.layout.display == "none"
    lab.sheet.entries["strategy"].value = "gossip"
    graph.input.value = "complete"
    assert lab.experiment.options == {"graph": "complete"}
    graph.input.value = dict(graph.input.options)["another …"]
    graph.other.value = "0-1, 1-2, 2-3"
    assert lab.sheet.values["options.graph"] == "0-1, 1-2, 2-3"
    for _ in range(2):
        faults.phrases.value = "jitter 0.1 x6"
    assert faults.value == "jitter 0.1 x6\njitter 0.1 x6" and faults.phrases.value == ""


def test_what_cannot_be_is_said_beside_its_field_and_nothing_is_lost(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = {"ranks": 3, "network.links": "0->1: 5", "seed": -1, "faults": "slow rank 1 x4"}
    for name, value in typed.items():
        lab.sheet.entries[name].value = value
    led: list[str] = []
    for name, entry in lab.sheet.entries.items():
        monkeypatch.setattr(entry.input, "focus", partial(led.append, name))
    lab.start()
    assert lab.run is None
    assert "What is wrong stands at: links that differ, seed." in lab.status.value
    assert led == ["network.links"], "the first of them has the focus"
    assert "has no unit" in lab.sheet.entries["network.links"].wrong
    assert "greater than or equal to 0" in lab.sheet.entries["seed"].wrong
    assert lab.sheet.entries["faults"].wrong == ""
    assert lab.sheet.more.value, "a field that is folded away is wrong"
    assert lab.code.text == NO_CODE
    assert {name: lab.sheet.values[name] for name in typed} == typed
    lab.sheet.entries["network.links"].value = ""
    lab.sheet.entries["seed"].value = 1
    assert lab.sheet.entries["network.links"].wrong == ""
    assert lab.experiment == Experiment(ranks=3, seed=1, faults=(wb.Slow(rank=1, factor=4),))


def test_what_only_starting_finds_out_is_said_too() -> None:
    """A schedule that is code is not run before."""

    def forgets(ranks, microbatches, stages_per_rank):
        return [[f"{rank}F{m}" for m in range(microbatches)] for rank in range(ranks)]

    exp = Experiment(strategy="pipeline", ranks=2, options={"schedule": forgets})
    lab = wb.lab(exp)
    try:
        assert lab.experiment == exp and not lab.sheet._wrong.value
        lab.start()
        assert lab.run is None and "Not started" in lab.status.value
        assert "0F0" in lab.sheet._wrong.value or "backward" in lab.sheet._wrong.value
        assert lab.sheet.values["options.schedule"].name == "forgets"
    finally:
        lab.close()


def test_an_experiment_of_the_users_own_is_the_first_preset() -> None:
    def half(comm, x):
        return x

    exp = Experiment(ranks=2, all_reduce=half)
    lab = wb.lab(exp)
    assert lab.preset.value == "Yours" and lab.experiment == exp
    assert lab.code.text == form.as_program(exp) and "all_reduce=half" in lab.code.text
    lab.preset.value = "Two ranks"
    assert lab.experiment == lab.presets["Two ranks"].experiment
    lab.preset.value = "Yours"
    assert lab.experiment == exp
    lab.close()


# ---- runs


def test_a_run_from_start_to_history(lab: Lab) -> None:
    small(lab, pad_compute="40 ms")  # long enough to be seen while it runs
    exp = lab.experiment
    lab.start()
    assert lab.run is not None and lab.run.experiment == exp
    assert lab.start_button.disabled and not lab.stop_button.disabled
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
    assert "Two: 2 of 2 runs done." in lab.status.value
    assert [past.title for past in lab.past.ticked] == ["ring", "naive"]
    assert [past.experiment.all_reduce for past in lab.history] == ["ring", "naive"]
    assert lab.stage._page.run is lab.run and lab.run.store.metadata["question"] == "?"
    assert "2 · naive</th>" in lab.past._table.value and "wb-line-key" in lab.past._table.value
    assert " ★" in lab.past._table.value
    wait_for(lambda: len(lab.charts.figure.data) == 3 + 4, "their losses")
    long = Compared("Long", "?", lambda: {"a": ring.replace(iterations=100_000), "b": ring})
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
    small(lab, iterations=100_000)
    lab.start()
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
    lab = wb.lab()
    small(lab, iterations=100_000)
    lab.start()
    run = lab.run
    wait_for(lambda: run.iteration > 2, "iterations")
    lab.close()
    run.wait(30)
    assert remains(threads, 10) == []
    lab.start()
    assert lab.run is run and "is closed" in lab.status.value


# ---- in a kernel


@pytest.mark.full
def test_in_a_kernel() -> None:
    """Plain words where widgets do not run; nothing heavy until asked for; no thread at the end."""
    manager, client = start_new_kernel()
    try:

        def output_of(code: str) -> str:
            messages = []
            client.execute_interactive(
                code, timeout=120, output_hook=lambda message: messages.append(message["content"])
            )
            failed = [one for one in messages if "traceback" in one]
            assert not failed, "\n".join(failed[0]["traceback"])
            shown = (one for one in messages if "comm_id" not in one)  # widgets talk at any time
            return "".join(one.get("text", "") or str(one.get("data", "")) for one in shown)

        heavy = ("ipywidgets", "anywidget", "plotly", "torch")
        look = f"print([name for name in {heavy} if name in sys.modules])"
        assert output_of(f"import sys, workbench as wb; {look}").strip() == "[]"
        shown = output_of("lab = wb.lab(); lab")
        assert "'text/plain': 'Lab()'" in shown and "widget-view+json" in shown
        output_of("lab.preset.value = 'Two ranks'; lab.sheet.entries['iterations'].value = 20")
        output_of("lab.start(); lab.run.wait(60)")
        assert output_of("print(lab.history)").strip() == "<History of 1 run>"
        names = "[t.name for t in threading.enumerate() if t.name.startswith('workbench')]"
        output_of("lab.close(); wb.shutdown(); import threading, time; time.sleep(1)")
        assert output_of(f"print({names})").strip() == "[]"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)

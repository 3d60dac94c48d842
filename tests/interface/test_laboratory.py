"""``wb.lab()`` without a browser: the form's widgets; and in a real kernel."""

from __future__ import annotations

import base64
import os
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import ipywidgets as w
import pytest
from ipywidgets.widgets.widget import _instances
from jupyter_client.manager import start_new_kernel

import workbench as wb
from workbench.experiment.spec import Experiment
from workbench.interface import form
from workbench.interface.form import NO_CODE
from workbench.interface.gallery import GALLERY
from workbench.interface.laboratory.panel import Lab

SVG = "{http://www.w3.org/2000/svg}"

# ---- the form


def test_it_begins_with_the_first_preset_and_its_code(lab: Lab) -> None:
    assert repr(lab) == "Lab()"
    assert lab.preset.value == next(iter(form.presets()))
    first = next(iter(form.presets().values())).experiment
    assert lab.code.text == form.as_program(first) and lab.experiment == first
    assert lab.stop_button.disabled and not lab.start_button.disabled


@pytest.mark.full
def test_a_page_whose_server_stands_still_loses_no_widget() -> None:
    """Beyond a thousand messages a kernel drops them. Each widget is one, changes are some more."""
    before = len(_instances)
    lab = wb.lab()
    models = len(_instances) - before
    lab.close()
    assert models < 800
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
    ring = lab.presets["Ring of four"].experiment
    assert lab.experiment == ring.replace(ranks=3)
    lab.undo()
    assert lab.experiment == ring and lab.back.disabled
    lab.undo()


def test_reset_goes_back_to_the_preset_and_can_be_taken_back(lab: Lab) -> None:
    lab.preset.value = "A slow link"
    lab.sheet.entries["iterations"].value = 7
    assert not lab.reset.disabled
    lab.reset.click()
    assert lab.experiment == lab.presets["A slow link"].experiment and lab.reset.disabled
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


def test_so_many_ranks_are_asked_about_before_any_starts(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same button starts them; a change of the form takes the question back."""
    cores = os.cpu_count() or 1
    many = 200 * cores
    begun: list[int] = []
    monkeypatch.setattr(lab, "_start", lambda exp: begun.append(exp.ranks))
    lab.sheet.entries["batch_size"].value = lab.sheet.entries["ranks"].value = many
    lab.start()
    assert begun == [] and lab.start_button.description == "Start anyway"
    memory = f"about {many / 10:,.0f} GB. Start them anyway?"
    assert f"{many:,} ranks on {cores} core" in lab.status.value and memory in lab.status.value
    lab.sheet.entries["iterations"].value = 7
    assert lab.start_button.description == "Run"
    lab.start()
    assert begun == []
    lab.start()
    assert begun == [many] and lab.start_button.description == "Run"
    lab.sheet.entries["ranks"].value = 64
    lab.start()
    assert begun == [many, 64], "64 ranks start without a question"


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
    assert "Not started. Correct these fields: links that differ, seed." in lab.status.value
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
    first = next(iter(form.presets().values())).experiment
    assert lab.experiment == first.replace(ranks=3, seed=1, faults=(wb.Slow(rank=1, factor=4),))


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


def test_where_no_kernel_runs_it_is_a_picture_of_its_gallery(lab: Lab) -> None:
    bundle = lab._repr_mimebundle_()
    assert bundle is not None and "application/vnd.jupyter.widget-view+json" in bundle
    picture = ElementTree.fromstring(bundle["image/svg+xml"])
    words = " ".join(text.text or "" for text in picture.iter(f"{SVG}text"))
    assert all(name in words and lab.presets[name].words in words for name in GALLERY)
    frames = [one.get("href", "") for one in picture.iter(f"{SVG}image")]
    assert len({*frames}) == len(GALLERY)
    assert all(one.startswith("data:image/webp;base64,") for one in frames)
    assert base64.b64encode(bundle["image/svg+xml"].encode()).decode() in bundle["text/html"]

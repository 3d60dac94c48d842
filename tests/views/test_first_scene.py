"""A run opens in the scene in which its question is seen."""

from __future__ import annotations

from pathlib import Path

import workbench as wb
from tests.synthetic import training
from workbench.experiment.traits import traits_of, with_traits
from workbench.presets.catalogue import note, presets
from workbench.store.event_store import Store
from workbench.views.pages.facts import facts
from workbench.views.replay import page
from workbench.views.scenes import first_scene, scenes


def opens(exp: wb.Experiment, **more: str) -> str:
    return first_scene({"experiment": exp.to_yaml(), **more})


def test_a_strategy_has_its_scene() -> None:
    assert opens(wb.Experiment(strategy="pipeline", task="char_transformer", ranks=2)) == "pipeline"
    assert opens(wb.Experiment(strategy="ddp", ranks=2)) == "timeline"
    assert opens(wb.Experiment(strategy="data_parallel", ranks=2)) == "collectives"
    assert opens(wb.Experiment(strategy="sequential", ranks=1)) == "overview"
    assert opens(wb.Experiment(strategy="ddp", ranks=2), scene="samples") == "samples"
    assert opens(wb.Experiment(strategy="ddp", ranks=2), scene="no such scene") == "timeline"
    assert first_scene({}) == "overview"  # a record that says nothing of its experiment


def test_every_preset_names_a_scene_and_keeps_its_question() -> None:
    known, opened = scenes(), set()
    for name, preset in presets().items():
        metadata = {"experiment": preset.experiment.to_yaml()}
        note(metadata, name, preset.experiment)
        assert metadata["question"] == preset.words == facts(metadata)["question"]
        scene = first_scene(metadata)
        assert scene in known and scene == (preset.scene or scene), name
        opened.add(scene)
    assert opened >= {"collectives", "timeline", "pipeline", "server", "peers", "shards", "samples"}


def test_what_was_changed_is_not_a_run_of_the_preset() -> None:
    straggler = presets()["A straggler"]
    for name, exp in (
        ("A straggler, changed", straggler.experiment),
        ("A straggler", straggler.experiment.replace(iterations=7)),
        ("no preset", straggler.experiment),
    ):
        metadata: dict[str, str] = {}
        note(metadata, name, exp)
        assert metadata == {}


def test_a_saved_page_opens_in_it_under_its_question(tmp_path: Path) -> None:
    """The facts that the page has of the run name both."""
    straggler = presets()["A straggler"]
    metadata = {"experiment": straggler.experiment.to_yaml()}
    note(metadata, straggler.name, straggler.experiment)
    store = Store.from_frame(training(3), metadata)
    store.save(tmp_path / "run.parquet")
    again = wb.load(tmp_path / "run.parquet").store
    assert facts(again.metadata)["question"] == straggler.words
    assert first_scene(again.metadata) == "timeline"
    assert "<!doctype html>" in page(again)


def test_the_scene_that_a_strategy_names_is_there() -> None:
    known = {name: traits_of(name).scene for name in with_traits(lambda one: bool(one.scene))}
    assert set(known.values()) <= scenes().keys() and len(known) > 5
    for name, scene in known.items():
        assert first_scene({"experiment": f"strategy: {name}\nranks: 4\n"}) == scene


def test_a_strategy_of_the_users_own_has_a_scene(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    for scene, opened in (("peers", "peers"), ("no such scene", "collectives")):
        file.write_text(f"TRAITS = Traits(scene={scene!r})\n\ndef train(job, config): ...\n")
        spec = wb.Experiment(strategy=f"{file}:train", ranks=2).to_yaml()
        assert first_scene({"experiment": spec}) == opened

"""Scenes: the pictures of a run. A scene is a folder of assets/scenes/ with a manifest, scene.json:

    {"label": "Shards", "order": 90, "facts": {"shards": {"found": true}}}

    opens   strategies whose runs open in it, beside those whose traits name it; "*" all others that
            have several ranks
    facts   keys of the page's ``known.run`` that the scene brings. "found": ranks find them out
            while they run. "heavy": pages keep them, so they are sent with a history and when they
            change, not with every message

Its Python side, if it needs one, is the module of that name in here or, of a scene of the user's
own (common/extensions.py), a file scene.py beside the manifest. All that it may have:

    facts(run) -> dict          the values of those keys; without it each is what ranks or the
                                driver have stored under that key, as JSON. ``run``: a RunRecord
    select(rows, facts)         what its still picture shows, from the rows of a run; None: nothing
    draw(selected) -> list      SVG elements of that, below the picture's first line
    ALONE = True                where it has something to show there is nothing else to see
    WIDE = True                 its still picture takes the whole width: no loss curve beside it
    ON_REQUEST = True           its still picture is drawn only where a cell asks for this scene

Nothing else in Python names a scene.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl

from workbench.common import extensions
from workbench.experiment.options import stored_options
from workbench.experiment.stored import read_stored
from workbench.experiment.traits import Traits, stored_traits
from workbench.front_end.assets import scene_manifests


@dataclass(frozen=True)
class RunRecord:
    """The metadata of a run, as scenes ask for it."""

    metadata: Mapping[str, str]

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        """Return the experiment's fields; {} where none is stored."""
        return read_stored(self.metadata)

    @cached_property
    def strategy(self) -> str:
        return name_of_code(self.spec.get("strategy", ""))

    @cached_property
    def traits(self) -> Traits:
        """Return what its strategy says of itself; of one whose source is gone, what most have."""
        return stored_traits(self.spec.get("strategy"))

    @cached_property
    def options(self) -> Mapping[str, Any]:
        """Return the strategy's options, defaults included."""
        return stored_options(self.spec)

    def read(self, key: str) -> Any:
        """Return what ranks or the driver have stored under a key as JSON; None: nothing."""
        text = self.metadata.get(key)
        return None if text is None else json.loads(text)


def name_of_code(code: Any) -> str:
    """Return the name of a file of ours, of a user's function, or of a path to one."""
    if isinstance(code, Mapping):
        return str(code.get("name", ""))
    path, _, name = str(code).rpartition(":")
    return name if path else str(code).rpartition("/")[2].removesuffix(".py")


@dataclass(frozen=True)
class Scene:
    """A scene as Python knows it. ``module``: its Python side, where it has one."""

    name: str
    label: str
    order: float
    keys: Mapping[str, Mapping[str, bool]]  # of its facts -> "found", "heavy"
    module: ModuleType | None = None

    @property
    def heavy(self) -> list[str]:
        """Return the keys of the facts that pages keep."""
        return [key for key, flags in self.keys.items() if flags.get("heavy")]

    @property
    def alone(self) -> bool:
        return bool(getattr(self.module, "ALONE", False))

    @property
    def wide(self) -> bool:
        return bool(getattr(self.module, "WIDE", False))

    @property
    def on_request(self) -> bool:
        return bool(getattr(self.module, "ON_REQUEST", False))

    def facts(self, run: RunRecord) -> dict[str, Any]:
        """Return the facts about a run that the page gets for this scene, by key."""
        if (function := getattr(self.module, "facts", None)) is not None:
            return dict(function(run))
        return {key: run.read(key) for key in self.keys}

    def reported(self, stored: Mapping[str, str]) -> dict[str, str]:
        """Return the metadata from which its facts are made that ranks find out while they run:
        "samples" and, of rank 3, "samples 3".
        """
        result = [key for key, flags in self.keys.items() if flags.get("found")]
        return {name: text for name, text in stored.items() if name.partition(" ")[0] in result}

    def select(self, rows: pl.LazyFrame, facts: Mapping[str, Any]) -> Any:
        """Return what the still picture of this scene shows; None: it shows nothing."""
        function = getattr(self.module, "select", None)
        return None if function is None else function(rows, facts)

    def draw(self, selected: Any) -> list[str]:
        """Return the SVG elements of what ``select`` has found."""
        return list(self.module.draw(selected)) if self.module is not None else []


def scenes() -> dict[str, Scene]:
    """Return all scenes by name, in the order of their tabs. Raises ValueError, which says what a
    manifest lacks.
    """
    return {
        one.name: Scene(one.name, one.label, one.order, one.facts, _side(one.folder))
        for one in scene_manifests()
    }


def _side(folder: Path) -> ModuleType | None:
    """Return a scene's Python side; None: it has none."""
    if (file := folder / "scene.py").is_file():
        return extensions.load_file(file)
    if folder.name in extensions.files("views/scenes"):
        return extensions.load("views/scenes", folder.name)
    return None


def first_scene(metadata: Mapping[str, str]) -> str:
    """Return the scene in which a run opens: what is stored with it, else that of its strategy."""
    if (stored := metadata.get("scene")) in (manifests := {m.name: m for m in scene_manifests()}):
        return str(stored)
    run = RunRecord(metadata)
    if (name := run.traits.scene) in manifests:
        return name
    for strategy in (run.strategy, "*" if int(run.spec.get("ranks", 1)) > 1 else ""):
        for name, manifest in manifests.items():
            if strategy and strategy in manifest.opens:
                return name
    return next(iter(manifests))


def facts_of(run: RunRecord) -> dict[str, Any]:
    """Return what all scenes have to tell a page of a run."""
    return {key: value for scene in scenes().values() for key, value in scene.facts(run).items()}


def reported(scenes: Mapping[str, Scene], metadata: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return, by scene, what ranks have reported up to now of what it asks for."""
    stored = dict(metadata)  # reports come meanwhile
    return {name: scene.reported(stored) for name, scene in scenes.items()}

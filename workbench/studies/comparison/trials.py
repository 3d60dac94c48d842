"""One run of a comparison: its name, its seed, what it found; kept in a folder and found again.

A file of such a folder is a saved run (``wb.load``), with what was found in its metadata. Its name
ends with a hash of all that the run depends on: the experiment, and the text of code that it names
by path. What has changed since is run again, beside the old file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.analysis import measures
from workbench.common.errors import SpecError, WorkbenchError
from workbench.experiment.frozen_model import walk
from workbench.experiment.spec import Experiment
from workbench.runs.history import Past
from workbench.store import parquet
from workbench.user_code import source
from workbench.user_code.source import Source, split_path

if TYPE_CHECKING:
    from workbench.runs.loaded import Loaded
    from workbench.runs.run import Run

FORMAT = 2  # of what is kept of a run; grows when an older one would be misread
RESULTS = "found"  # the key of a trial's results in the metadata of its file
CODE_FOLDERS = {
    "strategy": "strategies",
    "task": "tasks",
    "all_reduce": "collectives",
    "options": "consistency",
}
CURVE = pl.Schema(
    {
        "iteration": pl.Int64(),
        "updates": pl.Float64(),
        "seconds": pl.Float64(),
        "loss": pl.Float64(),
        "nbytes": pl.Int64(),
        "frames": pl.Int64(),  # that all actors had played; null without an environment
        "return": pl.Float64(),  # mean of the newest episodes; null before the first has ended
    }
)


class Trial:
    """An experiment with one seed. ``past`` has the run, live or over; None before."""

    def __init__(self, name: str, experiment: Experiment, seed: int) -> None:
        self.name, self.experiment, self.seed = name, experiment, seed
        self.past: Past | None = None
        self.file: Path | None = None  # where it is kept
        self.recalled = False  # it was found there, and not run
        self._final: dict[str, Any] = {}
        self._curve = pl.DataFrame(schema=CURVE)

    @property
    def label(self) -> str:
        return f"{self.name}, seed {self.seed}"

    @property
    def run(self) -> Run | Loaded | None:
        """Its events and views; read from its file where it has one. None if they are not kept."""
        if self.past is not None and self.past.run is not None:
            live: Run = self.past.run
            return live
        if self.file is not None:
            from workbench.runs.loaded import load

            return load(self.file)
        return None

    @property
    def state(self) -> str:
        """waiting, starting, running, finished, stopped or failed."""
        return str(self.summary()["state"])

    @property
    def done(self) -> bool:
        return self.state in ("finished", "stopped", "failed")

    @property
    def error(self) -> str | None:
        """The error in words."""
        facts: str | None = self.summary()["error"]
        return facts

    def summary(self) -> dict[str, Any]:
        """Return the trial's values, by the names of measures.MEASURES."""
        if self._final:
            return dict(self._final)
        if self.past is not None:
            return self.past.summary()
        return measures.nothing() | {"state": "waiting"}

    def losses(self) -> pl.DataFrame:
        """Return the losses, with columns of CURVE; no rows before the run is over."""
        if self.past is not None and self.past.over and not self._final:
            return self.past.losses().select(
                pl.col(name).cast(kind) for name, kind in CURVE.items()
            )
        return self._curve

    def fail(self, error: BaseException) -> None:
        """Record that the run did not start, or that its results could not be saved."""
        words = str(error) if isinstance(error, WorkbenchError) else repr(error)
        self._curve = self.losses()
        self._final = self.summary() | {"state": "failed", "error": words}

    def __repr__(self) -> str:
        return f"<{self.label}: {self.state}>"


def trials_of(experiments: Mapping[str, Experiment]) -> list[Trial]:
    """Return a trial per named experiment, each with its own seed."""
    return [Trial(name, exp, exp.seed) for name, exp in experiments.items()]


# ---- names


def names_for(experiments: Sequence[tuple[str, Experiment]]) -> list[tuple[str, Experiment]]:
    """Name unnamed experiments by their differences. Raises SpecError if two share a name."""
    named = [(name or "", exp) for name, exp in experiments]
    differences = _apart([exp for _, exp in named])
    named = [(name or word, exp) for (name, exp), word in zip(named, differences, strict=True)]
    names = [name for name, _ in named]
    for name in names:
        if names.count(name) > 1:
            raise SpecError(
                f"two experiments are called {name!r}: give them names of their own, as in "
                "compare({'first': exp, 'second': other})"
            )
    return named


def _apart(experiments: Sequence[Experiment]) -> list[str]:
    """Return each experiment's differences from the others: "asp", "staleness 3, lr 0.1"."""
    plain = [_flat(exp) for exp in experiments]
    keys = [key for key in dict.fromkeys(k for one in plain for k in one)]
    differing = [key for key in keys if len({repr(one.get(key)) for one in plain}) > 1]
    lines = []
    for exp, one in zip(experiments, plain, strict=True):
        words = [_word(key, one[key]) for key in differing if one.get(key) is not None]
        lines.append(", ".join(words) or measures.describe(exp))
    return lines


_BY_ITSELF = ("strategy", "task", "all_reduce", "consistency", "backend", "optimizer")


def _flat(exp: Experiment) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name in type(exp).model_fields:
        value = getattr(exp, name)
        if name in ("options", "task_options"):
            result |= {str(key): one for key, one in value.items()}
        else:
            result[name] = value
    return result


def _word(key: str, value: Any) -> str:
    if isinstance(value, Source):
        return value.name
    if key in ("ranks", "servers"):
        return f"{value} {key if value != 1 else key[:-1]}"
    return str(value) if key in _BY_ITSELF else f"{key.replace('_', ' ')} {value}"


# ---- files


def key_of(exp: Experiment) -> str:
    """Return a hash of everything that the run depends on."""
    texts = [f"{FORMAT}", exp.to_json()]
    for field, folder in CODE_FOLDERS.items():
        for value in walk(getattr(exp, field)):
            if isinstance(value, str) and split_path(value):
                texts.append(source.text_of(folder, value))
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def keep(trial: Trial, folder: Path) -> None:
    """Write a trial that is over into the folder. Raises WorkbenchError if that cannot be."""
    assert trial.past is not None
    store, curve = trial.past.run.store, trial.losses()
    store.metadata[RESULTS] = json.dumps(
        {
            "format": FORMAT,
            "name": trial.name,
            "summary": trial.summary(),
            "curve": curve.to_dict(as_series=False),
        }
    )
    slug = re.sub(r"[^\w.]+", "-", trial.name).strip("-")[:40]
    trial.file = folder / f"{slug}-seed{trial.seed}-{key_of(trial.experiment)}.parquet"
    store.save(trial.file)


def recall(trial: Trial, folder: Path) -> None:
    """Fill in what was found before, if the folder has it. A damaged file counts as none."""
    for file in sorted(folder.glob(f"*-{key_of(trial.experiment)}.parquet")):
        with contextlib.suppress(WorkbenchError, KeyError, ValueError, TypeError):
            *_, metadata = parquet.open_parquet(file)
            facts = json.loads(metadata[RESULTS])
            if facts["format"] == FORMAT:
                curve = pl.DataFrame(facts["curve"], schema=CURVE)
                trial._final = measures.nothing() | facts["summary"]
                trial._curve, trial.file, trial.recalled = curve, file, True
                return

"""An experiment's audit: its first update, judged by its strategy's promise (``Traits.update``).

The update of two iterations without faults, pads or links is judged, in float64. A strategy that
promises something else than the gradient of the whole minibatch is not judged, and one that does
not say what it promises is asked.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.auditing.audit import audit
from workbench.auditing.report import Audit
from workbench.experiment.traits import traits_of

_SCRIPT = """import os

from workbench.rank.audited import main

main({text!r}, int(os.environ["RANK"]))
"""
_PROMISES = {
    "rounds": "each rank trains by itself between averages of the parameters",
    "compressed": "a gradient is compressed, and what is left out comes later or never",
    "asynchronous": "a gradient is of parameters that other ranks have changed since",
}


def promise_of(exp: Any) -> str:
    """Return what an update of the experiment is made of, by its strategy's traits."""
    traits = traits_of(exp.strategy)
    for option, values, promise in traits.update_by:
        if exp.options.get(option) in values:
            return promise
    return traits.update


def judged(exp: Any, progress: bool, timeout: str) -> Audit:
    """Return the audit of an experiment."""
    promise = promise_of(exp)
    if promise in _PROMISES:
        return Audit(
            verdict="ABSTAINS",
            sentence=f"the strategy promises no more than this: {_PROMISES[promise]}. An audit "
            "judges updates that are the gradient of the whole minibatch",
        )
    fields = set(type(exp).model_fields)
    plain = {
        "iterations": 2,
        "dtype": "float64",
        "device": "cpu",
        "faults": (),
        "record": False,
        "momentum": 0.0,
    }
    bare = exp.replace(**{name: value for name, value in plain.items() if name in fields})
    with tempfile.TemporaryDirectory(prefix="workbench-audit-") as folder:
        script = Path(folder, "experiment.py")
        script.write_text(_SCRIPT.format(text=bare.to_json()), encoding="utf-8")
        result = audit(script, exp.ranks, {}, progress, timeout=timeout)
    if result.verdict == "WRONG" and not promise:
        return replace(
            result,
            verdict="QUESTION",
            sentence="the strategy does not say what its updates are made of (Traits(update=...)); "
            f"as the gradient of the whole minibatch: {result.sentence}",
        )
    return result

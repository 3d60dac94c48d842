"""Every public function and method, with the kind of each of its arguments.

FACE names every argument of every one of them with its kind (wrong_values.py).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import workbench as wb
from workbench.store.event_store import Store

VIEWS: dict[str, dict[str, str]] = {
    "bytes": {"iteration": "number?", "by_peer": "flag"},
    "bubble": {"by_iteration": "flag"},
    "calls": {"iteration": "number?", "by_rank": "flag"},
    "charts": {"names": "nothing", "theme": "nothing?"},
    "figure": {"name": "text", "theme": "nothing"},
    "memory": {"detail": "flag"},
    "metrics": {"name": "text"},
    "to_html": {"path": "path"},
    "view": {"scene": "text", "moment": "text"},
    "versions": {"at_ms": "real?"},
    "waits": {"iteration": "number?"},
    "critical_path": {"iteration": "number?"},
    "what_if": {"links": "nothing?", "compute": "nothing?"},
}
STEERING: dict[str, dict[str, str]] = {
    "freeze": {"rank": "rank"},
    "kill": {"rank": "rank"},
    "preempt": {"rank": "rank"},
    "corrupt": {"rank": "rank", "kind": "nothing"},
    "link": {
        "source": "rank",
        "target": "rank",
        "latency": "duration?",
        "bandwidth": "nothing?",
        "down": "flag?",
        "both": "flag",
    },
    "slow": {"rank": "rank", "factor": "factor"},
    "slow_motion": {"factor": "factor"},
    "step": {"count": "count", "unit": "nothing"},
    "thaw": {"rank": "rank"},
}
WAIT = {"timeout": "seconds?", "progress": "flag?"}
FACE: dict[str, dict[str, str]] = {
    "audit": {
        "script_or_function": "nothing",
        "ranks": "nothing",
        "env": "mapping",
        "progress": "flag",
        "args": "names",
        "update": "count",
        "seed": "seed",
        "lift": "flag",
        "timeout": "nothing",
    },
    "calibrate": {"ranks": "nothing", "operations": "nothing", "keep": "flag", "progress": "flag?"},
    "check": {
        "operation": "nothing",
        "function": "strategy",
        "ranks": "nothing",
        "sizes": "elements?",
        "dtypes": "nothing",
        "timeout": "seconds",
        "progress": "flag?",
    },
    "compare": {
        "experiments": "nothing",
        "seeds": "nothing?",
        "at_once": "nothing",
        "folder": "path?",
    },
    "crossover": {
        "given": "strategy",
        "operation": "nothing",
        "ranks": "nothing",
        "sizes": "nothing",
        "network": "nothing?",
        "measure": "flag",
    },
    "drift": {
        "subject": "strategy?",
        "ranks": "nothing?",
        "iterations": "nothing?",
        "mutants": "flag",
        "at": "moments?",
        "resumes_at": "nothing?",
    },
    "exercise": {"name": "nothing"},
    "fits": {
        "what": "nothing",
        "ranks": "nothing",
        "zero": "rank",
        "dtype": "nothing",
        "optimizer": "nothing",
        "memory_limit": "size?",
    },
    "grade": {"name": "nothing", "answer": "nothing"},
    "guess": {"question": "text", "options": "nothing"},
    "progress": {},
    "interval": {
        "experiment": "nothing",
        "mtbf": "nothing",
        "every": "nothing",
        "seeds": "nothing",
        "folder": "path?",
    },
    "about": {},
    "lab": {"experiment": "nothing?"},
    "load": {"path": "path", "partial": "flag", "job": "job"},
    "watch": {"folder": "path"},
    "partition": {
        "samples": "nothing?",
        "batch_size": "nothing?",
        "ranks": "nothing",
        "shuffle": "flag",
        "seed": "seed",
        "drop_last": "flag",
        "drop_last_batch": "flag?",
        "set_epoch": "flag?",
        "epochs": "nothing",
        "sampler": "nothing",
        "samplers": "samplers?",
        "sequential": "nothing?",
    },
    "plan": {
        "operation": "nothing",
        "algorithm": "nothing",
        "ranks": "nothing",
        "nbytes": "bytes",
        "latency": "duration",
        "bandwidth": "nothing",
        "adding": "nothing",
        "root": "rank",
        "itemsize": "nothing",
        "network": "nothing?",
    },
    "ranks": {"size": "nothing", "bare": "flag", "timeout": "nothing"},
    "run": {"exp": "nothing"},
    "runs": {},
    "schedule": {
        "value": "schedule",
        "ranks": "nothing?",
        "microbatches": "nothing?",
        "stages_per_rank": "nothing?",
        "iterations": "count",
        "most": "count",
    },
    "shutdown": {},
    "side_by_side": {"first": "nothing", "second": "nothing", "labels": "nothing?"},
    "speed_up": {
        "experiment": "nothing",
        "ranks": "nothing",
        "repeats": "nothing",
        "scaling": "nothing",
        "ceiling": "flag",
        "folder": "path?",
    },
    "split": {
        "what": "nothing",
        "stages": "nothing?",
        "how": "cuts?",
        "microbatch": "count?",
        "memory_limit": "size?",
        "peaks": "nothing?",
        "memory_weight": "share?",
    },
    "walk": {"run": "nothing", "steps": "nothing?", "scene": "text", "step": "count"},
    "why": {"operation": "nothing", "nbytes": "bytes", "ranks": "nothing", "network": "nothing?"},
    "Run": {"exp": "nothing", "prepared": "mapping?"},
    "Ranks": {"size": "nothing", "bare": "flag", "timeout": "nothing"},
    "Comparison.against": {"option": "text", "measures": "text", "theme": "nothing"},
    "Comparison.figure": {"by": "text", "theme": "nothing", "smooth": "count?"},
    "Comparison.reached": {"score": "real"},
    "Comparison.until": {"loss": "real"},
    "Comparison.verdict": {"measures": "text"},
    "Comparison.wait": {"timeout": "seconds?", "check": "flag", "progress": "flag?"},
    "Crossing.fastest": {"kind": "text"},
    "Crossing.figure": {"theme": "nothing"},
    "Crossing.miss": {"least": "number"},
    "Crossing.wait": {"timeout": "seconds?"},
    "Experiment.audit": {"progress": "flag", "timeout": "nothing"},
    "Experiment.from_json": {"text": "nothing"},
    "Experiment.from_yaml": {"path_or_text": "yaml", "allow_code": "flag"},
    "Experiment.model_validate": {"obj": "mapping"},
    "Experiment.rate_at": {"update": "number"},
    "Experiment.to_yaml": {"path": "path?"},
    "Guess.reveal": {"answer": "text", "why": "text"},
    "Guess.take": {"option": "text"},
    "Intervals.figure": {"theme": "nothing"},
    "Intervals.wait": WAIT,
    "Lab.compare": {"pasts": "pasts"},
    "Lab.show": {"past": "nothing"},
    "Lab.take": {"past": "nothing"},
    "Link.named": {"name": "text"},
    "Network.at": {"level": "number"},
    "Network.link": {"sender": "number", "receiver": "number"},
    "Partition.averages": {"values": "reals", "epoch": "number"},
    "Progress.to_csv": {"path": "path", "reader": "text"},
    "Progress.to_json": {"path": "path", "reader": "text"},
    "Ranks.at_end": {"call": "function"},
    "Ranks.execute": {"code": "text", "ranks": "nothing?", "name": "text?", "tell": "function"},
    "Report.to_html": {"path": "path"},
    "Run.at_end": {"call": "function"},
    "Run.checkpoint": {"timeout": "seconds"},
    "Watching.wait": {"timeout": "seconds?"},
    "Run.wait": {"timeout": "seconds?", "check": "flag", "progress": "flag?"},
    "Scenario.drawn": {"exp": "nothing"},
    "Scenario.from_yaml": {"path_or_text": "yaml"},
    "Scenario.on": {"exp": "nothing"},
    "Scenario.to_yaml": {"path": "path?"},
    "Schedule.from_facts": {"facts": "facts"},
    "Schedule.parse": {"text": "text", "name": "text", "flush": "flag"},
    "Store.from_frame": {"events": "nothing", "metadata": "mapping?"},
    "Store.load": {"path": "path", "partial": "flag", "job": "job", "memory_rows": "number"},
    "Store.pieces": {"stop": "number?", "start": "number"},
    "Store.save": {"path": "path"},
    "Store.since": {"position": "number"},
    "Store.to_perfetto": {"path": "path"},
    "Store.to_chakra": {"folder": "path"},
    "Study.figure": {"theme": "nothing"},
    "Study.wait": WAIT,
    "Report of drift.figure": {"theme": "nothing"},
    "Report of drift.wait": WAIT,
    **{
        f"{name}.{method}": arguments
        for name in ("Run", "Ranks", "Loaded", "Planned", "SideBySide", "Watching")
        for method, arguments in VIEWS.items()
    },
    "Run.remove_rank": {"rank": "rank"},
    **{
        f"{name}.{method}": arguments
        for name in ("Run", "Ranks")
        for method, arguments in STEERING.items()
    },
}

# What else is asked for, so that the wrong value is what is wrong.
BESIDE: dict[str, dict[str, Any]] = {
    "audit": {"script_or_function": "/nowhere.py"},
    "calibrate": {"ranks": (2,), "operations": ("broadcast",), "progress": False},
    "check": {"operation": "all_reduce", "function": "ring", "ranks": 1, "sizes": 1},
    "compare": {"experiments": [wb.Experiment(ranks=1)]},
    "plan": {"operation": "all_reduce", "algorithm": "ring", "ranks": 2},
    "run": {},
    "schedule": {"value": "gpipe", "ranks": 2, "microbatches": 2},
    "speed_up": {"experiment": wb.Experiment(ranks=1)},
    "split": {"what": "lenet_digits"},
    "side_by_side": {
        "first": wb.plan("all_reduce", "ring", ranks=2),
        "second": wb.plan("all_reduce", "tree", ranks=2),
    },
    "fits": {"what": 1000},
    "walk": {"run": wb.plan("all_reduce", "ring", ranks=2)},
    "ranks": {"size": 1},
    "Ranks": {"size": 1},
    "Run": {"exp": wb.Experiment(ranks=1)},
    "interval": {"experiment": wb.Experiment(ranks=1), "mtbf": "1 s"},
    "grade": {"name": "01.1"},
    "guess": {"question": "Which?", "options": ["a", "b"]},
    "Guess.reveal": {"answer": "a"},
    "Progress.to_csv": {"path": "/nowhere"},
    "Progress.to_json": {"path": "/nowhere"},
    "load": {"path": "/nowhere"},
    "Store.load": {"path": "/nowhere"},
    "Ranks.execute": {"code": ""},
    "Schedule.parse": {"text": "0F0 0B0"},
    "Network.link": {"sender": 0, "receiver": 1},
    "Partition.averages": {"values": [1.0]},
    "Run.link": {"source": 0, "target": 1},
    "Ranks.link": {"source": 0, "target": 1},
    "Run.corrupt": {"rank": 0},
    "Ranks.corrupt": {"rank": 0},
    "Run.slow": {"rank": 0, "factor": 2},
    "Ranks.slow": {"rank": 0, "factor": 2},
    "Experiment.from_yaml": {"path_or_text": "ranks: 2\n"},
    "Comparison.against": {"option": "lr"},
    "Comparison.verdict": {"measures": "step_ms"},
    "Crossing.wait": {},
    "crossover": {"measure": False},
    "drift": {"mutants": False},
    "Store.from_frame": {"events": Store().events},
    **{
        f"{name}.figure": {"name": "loss"}
        for name in ("Run", "Ranks", "Loaded", "Planned", "SideBySide", "Watching")
    },
}
OF_THE_COLLECTOR = {
    "append",
    "names",
    "number",
    "set_now",
    "collected_by",
    "count_folded",
}  # methods that only the engine calls

# Classes of wb.__all__ that only these functions make.
MADE_BY = {
    "Audit": "audit",
    "Comparison": "compare",
    "Partition": "partition",
    "Planned": "plan",
    "Result": "run",
    "Schedule": "schedule",
    "SideBySide": "side_by_side",
    "Study": "speed_up",
}
NOUN = {"value": "schedule", "what": "cannot split"}  # in the messages of some arguments
RECORDS = (
    "Checkpoint",
    "Experiment",
    "Network",
    "Link",
    "Kill",
    "Freeze",
    "Slow",
    "Jitter",
    "Pads",
    "Corrupt",
    "Cut",
    "NetworkPartition",
    "Preempt",
    "FailToStart",
    "Join",
    "SourceDown",
    "Scenario",
    "Traits",
    "When",
)


def classes() -> dict[str, type]:
    """Those of wb.__all__, those that its functions give, and a run's store."""
    result = {name: getattr(wb, name) for name in wb.__all__ if inspect.isclass(getattr(wb, name))}
    for name in wb.__all__:
        one = getattr(wb, name)
        if inspect.isfunction(one):
            kind = eval(one.__annotations__["return"], vars(sys.modules[one.__module__]))
            if inspect.isclass(kind) and kind.__name__ not in result:
                result[kind.__name__] = kind
            elif inspect.isclass(kind) and result[kind.__name__] is not kind:
                result[f"{kind.__name__} of {name}"] = kind
    return {**result, "Store": Store}


CLASSES = classes()


def arguments(function: Callable[..., Any]) -> list[str]:
    """Their names, but for ``self``, ``cls`` and further keywords."""
    named = inspect.signature(function).parameters.values()
    return [
        one.name
        for one in named
        if one.name not in ("self", "cls") and one.kind is not one.VAR_KEYWORD
    ]


def methods() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Those that take arguments, of our own classes, with what to call."""
    for name, one in CLASSES.items():
        if issubclass(one, BaseException):
            continue
        for base in one.__mro__:
            for method, written in vars(base).items():
                inner = getattr(written, "__func__", written)
                if (
                    base.__module__.startswith("workbench")
                    and not method.startswith("_")
                    and inspect.isfunction(inner)
                    and arguments(inner)
                    and not (one is Store and method in OF_THE_COLLECTOR)
                ):
                    yield f"{name}.{method}", getattr(one, method)


def face() -> dict[str, Callable[..., Any]]:
    """Everything public that takes arguments, by name. What is wrong with an argument of a method
    is said before the object is looked at: so an object that was never made will do.
    """
    result: dict[str, Callable[..., Any]] = {}
    for name in wb.__all__:
        one = getattr(wb, name)
        if inspect.isfunction(one) or name in ("Run", "Ranks"):
            result[name] = one
    for name, method in methods():
        if not inspect.ismethod(method):  # else of the class
            owner = CLASSES[name.partition(".")[0]]
            method = method.__get__(owner.__new__(owner))
        result[name] = method
    return result


CALLS = face()

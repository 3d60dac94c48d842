"""Public names that are imported when they are first asked for, and where they are.

Behind them stand what only drivers need, such as polars and the user interface, and pydantic: an
agent (launchers/processes/agent.py) starts beside every rank, and a job that only names the backend
needs none of them.
"""

from __future__ import annotations

_OF_A_SPEC = (
    "Corrupt Cut Experiment FailToStart Freeze Jitter Join Kill Link Network NetworkPartition Pads "
    "Preempt Slow SourceDown When"
)
LATER = {name: ("experiment.spec", name) for name in _OF_A_SPEC.split()} | {
    "Checkpoint": ("experiment.checkpoint", "Checkpoint"),
    "Scenario": ("experiment.scenario", "Scenario"),
    "Traits": ("experiment.traits", "Traits"),
    "Result": ("store.result", "Result"),
    "Run": ("runs.run", "Run"),
    "run": ("runs.run", "run"),
    "shutdown": ("launchers.processes.pool", "shutdown"),
    "Comparison": ("studies.comparison.comparison", "Comparison"),
    "Schedule": ("training.pipelines.schedule", "Schedule"),
    "Audit": ("auditing.report", "Audit"),
    "about": ("interface.about", "about"),
    "audit": ("auditing.audit", "audit"),
    "calibrate": ("studies.crossover.calibrate", "calibrate"),
    "check": ("studies.checking.check", "check"),
    "compare": ("studies.comparison.comparison", "compare"),
    "crossover": ("studies.crossover.crossover", "crossover"),
    "drift": ("studies.drift.drift", "drift"),
    "exercise": ("exercises.catalogue", "exercise"),
    "grade": ("exercises.grade", "grade"),
    "fits": ("studies.fits", "fits"),
    "guess": ("exercises.guess", "guess"),
    "progress": ("exercises.progress", "progress"),
    "interval": ("studies.interval.study", "interval"),
    "Partition": ("studies.partition", "Partition"),
    "Ranks": ("cells.team", "Ranks"),
    "lab": ("interface.laboratory", "lab"),
    "load": ("runs.loaded", "load"),
    "partition": ("studies.partition", "partition"),
    "Planned": ("studies.planning", "Planned"),
    "plan": ("studies.planning", "plan"),
    "ranks": ("cells.team", "ranks"),
    "Study": ("studies.speed_up.study", "Study"),
    "schedule": ("training.pipelines.schedule", "build"),
    "SideBySide": ("studies.side_by_side", "SideBySide"),
    "side_by_side": ("studies.side_by_side", "side_by_side"),
    "speed_up": ("studies.speed_up.study", "speed_up"),
    "split": ("studies.split", "split"),
    "walk": ("views.walks", "walk"),
    "watch": ("runs.attach", "watch"),
    "why": ("studies.crossover.ask", "why"),
}

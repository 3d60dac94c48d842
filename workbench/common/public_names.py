"""Public names that are imported when they are first asked for, and where they are.

Behind them stand polars, which ranks can do without, and the user interface.
"""

from __future__ import annotations

LATER = {
    "Comparison": ("studies.comparison.comparison", "Comparison"),
    "Schedule": ("training.pipelines.schedule", "Schedule"),
    "about": ("interface.about", "about"),
    "calibrate": ("studies.crossover.calibrate", "calibrate"),
    "check": ("studies.checking.check", "check"),
    "compare": ("studies.comparison.comparison", "compare"),
    "crossover": ("studies.crossover.crossover", "crossover"),
    "drift": ("studies.drift.drift", "drift"),
    "exercise": ("exercises.catalogue", "exercise"),
    "grade": ("exercises.grade", "grade"),
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
    "watch": ("runs.attach", "watch"),
    "why": ("studies.crossover.ask", "why"),
}

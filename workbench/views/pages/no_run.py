"""The message for a page that has no run to show yet."""

from __future__ import annotations

from workbench.recording.events import KINDS
from workbench.views.packing import Message, pack
from workbench.views.pages.facts import NO_CONTROL, facts


def nothing(
    words: str = "Nothing runs yet.", scene: str = "overview", can_start: bool = False
) -> Message:
    """Return the message for a page without a run yet; ``can_start``: the page may ask for one."""
    page = {"readonly": True, "scene": scene, "moment": "", "can_start": can_start, "trials": None}
    run = {"id": "", **facts({}), **page}
    return Message(
        {
            "type": "batch",
            "seq": 1,
            "reset": True,
            "run": run,
            "kinds": list(KINDS),
            "state": "empty",
            "words": words,
            "failure": None,
            "control": NO_CONTROL,
            "origin": 0,
            "now": None,
            "counters": {
                "events": 0,
                "dropped": 0,
                "per_second": 0,
                "iteration": -1,
                "loss": None,
                "accuracy": None,
                "record_share": None,
                "older": 0,
                "coarser": None,
                "folded": None,
            },
            "lanes_now": [],
            "strings": {"first": 0, "texts": [""]},
            **pack([], 0)[0],
        }
    )

"""A still picture of a run with actors: what each role has done, and the bytes of each kind.

``svg_reinforcement.py`` draws it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench.common.units import counted
from workbench.training.reinforcement.bytes_by_kind import KINDS

EPISODES = 20  # of which the mean return is said


@dataclass(frozen=True)
class Played:
    """``roles``: of each role, in the order in which experience takes, its ranks and what they have
    done; ``sent``: of each kind of message that went from rank to rank the bytes.
    """

    roles: tuple[tuple[str, int, str], ...]
    sent: tuple[tuple[str, int], ...]
    words: str = ""


def select(rows: pl.LazyFrame, run_facts: dict[str, Any]) -> Played | None:
    """Return the picture's data; None if there are no actors. ``run_facts``: the store's."""
    if not (roles := run_facts.get("roles")):
        return None
    p = pl.col
    marks = (
        rows.filter(p("kind") == "metric")
        .select("rank", p("name").cast(pl.String), "value", "end_ns")
        .filter(p("name").is_in(["frames", "inserted", "loss", "return"]))
        .sort("end_ns")
        .collect()
    )

    def of(name: str) -> pl.DataFrame:
        return marks.filter(p("name") == name)

    frames = int(of("frames").group_by("rank").agg(p("value").max())["value"].sum())
    done = {
        "actors": counted(frames, "frame"),
        "replays": f"{int(of('inserted')['value'].sum()):,} came in",
        "learners": counted(of("loss").height, "update"),
        "servers": "parameters",
    }
    sends = (
        rows.filter(p("kind") == "send")
        .group_by(p("name").cast(pl.String))
        .agg(p("nbytes").sum())
        .collect()
    )
    nbytes = dict(sends.iter_rows())
    returns = of("return")["value"].tail(EPISODES)
    bundled = roles["options"].get("bundle", False)
    if bundled:
        done["actors"] = f"{done['actors']}, {done['learners']}"
    shown = ("actors", "servers") if bundled else ("actors", "replays", "learners", "servers")
    return Played(
        roles=tuple(
            ("bundles" if bundled and name == "actors" else name, len(roles[name]), done[name])
            for name in shown
            if roles[name]
        ),
        sent=tuple((name, nbytes[name]) for name in KINDS if nbytes.get(name)),
        words=_words(frames, returns),
    )


def _words(frames: int, returns: pl.Series) -> str:
    if not frames:
        return "No frame was played yet."
    if not len(returns):
        return f"{counted(frames, 'frame')}, and no episode has ended yet."
    many = "the last episode" if len(returns) == 1 else f"the last {len(returns)} episodes"
    mean = float(returns.to_numpy().mean())
    return f"{counted(frames, 'frame')}; {many} returned {mean:.2g} on average."

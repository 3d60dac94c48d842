"""Runs that the site embeds, made for it: a page each, which moves, with every event in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import workbench as wb
from workbench.views.scenes import scenes

LINKS = {"latency": "2 ms", "bandwidth": "100 Mbit/s"}


def experiments() -> dict[str, tuple[str, wb.Experiment]]:
    """Return name -> (the scene that the page opens with, the experiment)."""
    net = wb.Network(**LINKS)
    ring: dict[str, Any] = {"ranks": 4, "iterations": 12, "threads": 1}
    pipeline = {"schedule": "1f1b", "microbatches": 8}
    return {
        "ring": ("collectives", wb.Experiment(network=net, **ring)),
        "server": (
            "server",
            wb.Experiment(
                strategy="parameter_server",
                pad_compute="10 ms",
                faults=(wb.Jitter(probability=0.1, factor=6),),
                options={"consistency": "ssp", "staleness": 3},
                **{**ring, "ranks": 5, "iterations": 30},
            ),
        ),
        "overlap": (
            "timeline",
            wb.Experiment(
                strategy="ddp",
                task="mlp_layers",
                task_options={"layers": 12, "width": 64},
                pad_compute="60 ms",
                network=net,
                options={"bucket_cap_mb": 0.05},
                **ring,
            ),
        ),
        "pipeline": (
            "pipeline",
            wb.Experiment(
                strategy="pipeline",
                task="char_transformer",
                options=pipeline,
                batch_size=32,
                optimizer="adam",
                **{**ring, "iterations": 4},
            ),
        ),
        "gossip": (
            "peers",
            wb.Experiment(strategy="gossip", options={"graph": "ring"}, **ring),
        ),
        "fsdp": (
            "shards",
            wb.Experiment(
                strategy="fsdp",
                task="char_transformer",
                batch_size=8,
                optimizer="adam",
                **{**ring, "iterations": 3},
            ),
        ),
        "recovery": (
            "collectives",
            wb.Experiment(
                recovery="replace",
                faults=(wb.Kill(rank=2, at_iteration=6),),
                network=net,
                **ring,
            ),
        ),
    }


# Which of them a chapter embeds, by the chapter's number.
OF_CHAPTER = {
    "01": "ring",
    "03": "server",
    "06": "pipeline",
    "09": "overlap",
    "11b": "gossip",
    "13": "ring",
    "15": "recovery",
    "21": "fsdp",
}


def record(folder: Path, names: list[str]) -> None:
    """Run the experiments of these names, and write a page for each into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    known = experiments()
    for name in names:
        scene, exp = known[name]
        run = wb.run(exp)
        run.wait(120, progress=False)
        page = folder / f"{name}.html"
        run.to_html(page)
        page.write_text(
            opening(page.read_text(encoding="utf-8"), scenes()[scene].label), encoding="utf-8"
        )


def opening(page: str, label: str) -> str:
    """Return a replay's page that goes to the scene with this label as soon as it has drawn it."""
    script = f"""<script>(function open() {{
  const tabs = [...document.querySelectorAll('[role="tab"]')];
  const tab = tabs.find((one) => one.textContent.trim() === {json.dumps(label)});
  tab ? tab.click() : setTimeout(open, 100);
}})();</script></body>"""
    return page.replace("</body>", script)

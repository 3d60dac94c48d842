"""Every scene with sixteen ranks while it plays: the main thread's time per frame, and frames per
second.

Real runs are recorded, then their saved pages play: what is drawn is what a live page draws, and no
rank shares the cores with the browser, which draws in software. Main-thread time is Chromium's own
(`Performance.getMetrics`), of all that the page does, over the frames that were drawn.
"""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, Page

import workbench as wb
from tools.benchmarks.figures import Figure
from tools.benchmarks.pages import chromium
from workbench.front_end.assets import stage_module

SECONDS = 3
PIPELINE = {"schedule": "1f1b", "microbatches": 8}
# Run -> its experiment, and the scenes that are looked at in it.
RUNS: Mapping[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "ring": (
        {"strategy": "data_parallel", "ranks": 16, "iterations": 12},
        ("overview", "collectives", "timeline", "samples"),
    ),
    "eight": (
        {"strategy": "data_parallel", "ranks": 8, "iterations": 12},
        ("collectives", "timeline"),
    ),
    "server": (
        {
            "strategy": "parameter_server",
            "ranks": 16,
            "iterations": 20,
            "options": {"servers": 2, "consistency": "ssp", "staleness": 3},
        },
        ("server",),
    ),
    "pipeline": (
        {
            "strategy": "pipeline",
            "task": "char_transformer",
            "ranks": 16,
            "iterations": 3,
            "options": PIPELINE,
        },
        ("pipeline", "model"),
    ),
    "gossip": ({"strategy": "gossip", "ranks": 16, "iterations": 30}, ("peers",)),
    "shards": (
        {"strategy": "fsdp", "task": "mlp_layers", "ranks": 16, "iterations": 4},
        ("shards",),
    ),
    "games": (
        {
            "strategy": "ape_x",
            "task": "catch",
            "ranks": 16,
            "iterations": 200,
            "batch_size": 32,
        },
        ("reinforcement",),
    ),
}
# Seconds of drawing from here on: how long frames were apart by the browser's own frame times, and
# the stage's own script in each.
DRAW = """async ([root, seconds]) => {
  const gaps = [], costs = [];
  const next = () => new Promise(requestAnimationFrame);
  let last = await next();
  const until = last + seconds * 1000;
  while (last < until) {
    const now = await next();
    gaps.push(now - last);
    last = now;
    costs.push(root.stage.frame().cost);
  }
  return { gaps, costs };
}"""
START = """(root, scene) => {
  root.stage.open(scene);
  const { table } = root.stage.known();
  root.stage.goto(table.from + 0.3 * (table.to - table.from));
  root.querySelector(".wb-toggle").click();
}"""
# From a key to the other scene, drawn: by turns the timeline (3) and the collectives (2).
KEYS = """async (root) => {
  const took = [];
  const frame = () => new Promise(requestAnimationFrame);
  for (let i = 0; i < 20; i++) {
    const key = i % 2 ? "2" : "3";
    await new Promise((on) => setTimeout(on, 150));
    const began = performance.now();
    root.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    await frame(); // the stage draws in this one
    await frame();
    took.push(performance.now() - began);
    if (root.dataset.scene !== (i % 2 ? "collectives" : "timeline")) throw new Error(key);
  }
  return took.sort((a, b) => a - b);
}"""
# From the start of the page's own time to the first frame that the stage has drawn.
FIRST = """() => {
  const look = () => {
    const root = document.querySelector(".wb-stage");
    if (root?.stage?.frame().cost > 0) window.first = performance.now();
    else requestAnimationFrame(look);
  };
  addEventListener("DOMContentLoaded", look);
}"""


def measure() -> list[Figure]:
    result = [_module()]
    with tempfile.TemporaryDirectory() as folder:
        for name, (fields, _) in RUNS.items():
            run = wb.run(wb.Experiment(**fields))
            run.wait(300, progress=False)
            run.to_html(Path(folder) / f"{name}.html")
        wb.shutdown()  # the browser has the cores alone
        with chromium() as browser:
            for name, (fields, scenes) in RUNS.items():
                for scene in scenes:
                    page = browser.new_page(viewport={"width": 1440, "height": 900})
                    path = Path(folder) / f"{name}.html"
                    result += _of_scene(page, path, scene, fields["ranks"])
                    if scene == "collectives":
                        result += _of_keys(page, fields["ranks"])
                    page.close()
    return result


def _of_scene(page: Page, path: Path, scene: str, ranks: int) -> list[Figure]:
    page.add_init_script(f"({FIRST})()")
    page.goto(path.as_uri())
    stage = page.locator(".wb-stage")
    stage.wait_for(timeout=60_000)
    stage.evaluate(START, scene)
    page.wait_for_timeout(1000)
    chrome = page.context.new_cdp_session(page)
    chrome.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = _metrics(chrome)
    drawn = page.evaluate(DRAW, [stage.element_handle(), SECONDS])
    after = _metrics(chrome)
    frames = len(drawn["gaps"])
    busy = 1e3 * (after["TaskDuration"] - before["TaskDuration"]) / frames
    script = 1e3 * (after["ScriptDuration"] - before["ScriptDuration"]) / frames
    costs = sorted(drawn["costs"])
    detail = (
        f"{scene}, {ranks} ranks, {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}; "
        f"script {script:.1f} ms, p95 {costs[int(0.95 * frames)]:.1f} ms"
    )
    rate = 1e3 * frames / sum(drawn["gaps"])
    return [
        Figure("main thread a frame", busy, 8, "ms", False, detail),
        Figure(
            "frames per second", rate, 60 if ranks <= 8 else None, "/s", True, f"{scene}, {ranks}"
        ),
    ]


def _module() -> Figure:
    size = len(gzip.compress(stage_module().encode())) / 1000
    return Figure("the module, packed", size, None, "kB", False, "sent once a page")


def _of_keys(page: Page, ranks: int) -> list[Figure]:
    took = page.locator(".wb-stage").evaluate(KEYS)
    first = page.evaluate("window.first")
    return [
        Figure("key to other view", took[len(took) // 2], 100, "ms", False, f"{ranks} ranks"),
        Figure("a saved page to its first frame", first, None, "ms", False, f"{ranks} ranks"),
    ]


def _metrics(chrome: CDPSession) -> dict[str, float]:
    metrics = chrome.send("Performance.getMetrics")["metrics"]
    return {one["name"]: one["value"] for one in metrics}

"""The picture of a run in a real browser: frames, the way of an event to its frame, scrubbing.

Sixteen ranks at 200,000 events per second with a million events of history, over a real web socket.
The browser draws in software on the cores that make the events, too.
"""

from __future__ import annotations

import os
import time

from playwright.sync_api import Page

from tools.benchmarks.figures import Figure
from tools.benchmarks.pages import chromium, served

SCENES = ("overview", "collectives", "timeline")
# For five seconds: the time between frames, as the browser counts them (the moment at which a
# callback has its turn tells what the main thread did before it in that frame); how late that turn
# was; the script of the picture a frame; and for new rows in a frame how long ago they ended.
# Both clocks are this machine's wall clock. A page that fell behind gets the history again, in a
# table of its own: what is new begins after it. Where no row came in five seconds, it looks on
# until one does.
LOOK = """async ([root, wall]) => {
  const gaps = [], turns = [], costs = [], ages = [], first = performance.now();
  let { table } = root.stage.known(), last = NaN, seen = table.rows + table.forgotten;
  await new Promise((done) => {
    const look = (frame) => {
      const now = performance.now(), known = root.stage.known();
      if (last) gaps.push(frame - last);
      last = frame;
      turns.push(now - frame);
      costs.push(root.stage.frame().cost);
      if (known.table !== table) [table, seen] = [known.table, Infinity];
      const all = table.rows + table.forgotten, { end } = table.columns;
      const age = (row) => performance.timeOrigin + now - wall - (known.origin + end[row]) / 1e6;
      for (let r = Math.max(seen, table.forgotten); r < all; r += 50)
        ages.push(age(r - table.forgotten));
      seen = all;
      const ms = now - first;
      if (ms < 5000 || (!ages.length && ms < 30_000)) requestAnimationFrame(look);
      else done();
    };
    requestAnimationFrame(look);
  });
  return { gaps, turns, costs, ages };
}"""
SCRUB = """async (root) => {
  const { table } = root.stage.known(), costs = [];
  for (let i = 0; i < 60; i++) {
    const began = performance.now();
    root.stage.goto(table.from + ((i * 37) % 60) / 60 * (table.to - table.from));
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    costs.push(root.stage.frame().cost);
  }
  return costs;
}"""


def measure() -> list[Figure]:
    with served("tools.benchmarks.busy_server", "{port}") as address, chromium() as browser:
        page = browser.new_page(viewport={"width": 1040, "height": 1000})
        page.goto(address)
        page.locator(".wb-stage").wait_for(timeout=60_000)
        page.wait_for_timeout(3000)  # the history has come, and is drawn
        return [figure for scene in SCENES for figure in _of_scene(page, scene)]


def _of_scene(page: Page, scene: str) -> list[Figure]:
    stage = page.locator(".wb-stage")
    stage.evaluate("(root, name) => root.stage.open(name)", scene)
    page.wait_for_timeout(1000)
    wall = (time.time_ns() - time.monotonic_ns()) / 1e6
    samples = page.evaluate(LOOK, [stage.element_handle(), wall])
    events = stage.evaluate("(root) => root.stage.known().counters.events")
    detail = f"{scene}, {events:,} events, {os.cpu_count()} cores"
    gaps = samples["gaps"]
    frames = (
        f"{detail}; {1e3 * len(gaps) / sum(gaps):.1f} frames per second, "
        f"p95 of a callback's turn {_p95(samples['turns']):.1f} ms after its frame began"
    )
    figures = [
        Figure("frame interval, p95", _p95(gaps), 18, "ms", False, frames),
        Figure("script a frame, p95", _p95(samples["costs"]), 8, "ms", False, detail),
        Figure("event to frame, p95", _p95(samples["ages"]), 100, "ms", False, detail),
    ]
    scrubs = stage.evaluate(SCRUB)
    stage.evaluate("(root) => root.querySelector('.wb-live').click()")
    return [*figures, Figure("scrub anywhere, p95", _p95(scrubs), 50, "ms", False, detail)]


def _p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)] if values else float("nan")

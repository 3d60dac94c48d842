"""The web app with warm ranks: from the click that starts a run to the first chunk that moves."""

from __future__ import annotations

import os
import statistics

from playwright.sync_api import BrowserContext

from tools.benchmarks.figures import Figure
from tools.benchmarks.pages import chromium, served

TIMES = 7
GONE_MS = 5000  # until the ranks of a stopped run have ended: they would share the cores
# In every page, before all else: when was clicked, and when a chunk was first under way.
WATCH = """
addEventListener("click", () => sessionStorage.setItem("clicked", performance.timeOrigin + performance.now()), true);
const within = (root) => {
  for (const e of root.querySelectorAll("*")) {
    const found = e.stage ? e : e.shadowRoot && within(e.shadowRoot);
    if (found) return found;
  }
  return null;
};
const look = () => {
  const found = document.body && within(document);
  if (found && found.stage.frame().marks.length)
    window.took = performance.timeOrigin + performance.now() - sessionStorage.getItem("clicked");
  else requestAnimationFrame(look);
};
look();
"""  # noqa: E501


def measure() -> list[Figure]:
    with served("workbench.cli", "serve", "--port", "{port}") as address, chromium() as browser:
        context = browser.new_context(viewport={"width": 1280, "height": 1000})
        context.add_init_script(WATCH)
        took = [_click(context, address) / 1e3 for _ in range(TIMES)]
    detail = f"{min(took):.2f} to {max(took):.2f}, {os.cpu_count()} cores"
    return [Figure("click to moving chunk", statistics.median(took), 1, "s", False, detail)]


def _click(context: BrowserContext, address: str) -> float:
    page = context.new_page()
    page.goto(address)
    button = page.get_by_role("button", name="Start: ring of four")
    button.wait_for(timeout=60_000)
    page.wait_for_timeout(2500)  # a reader looks first; and ranks are made ready meanwhile
    button.click()
    page.wait_for_url("**/run?id=*", timeout=60_000)
    for _ in range(400):  # the page's own rules forbid what wait_for_function does
        if took := page.evaluate("() => window.took ?? 0"):
            break
        page.wait_for_timeout(50)
    assert took, "no chunk has moved"
    page.locator(".wb-stop").click()
    page.wait_for_timeout(GONE_MS)
    page.close()
    return float(took)

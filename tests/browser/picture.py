"""The README's pictures: ``python -m tests.browser.picture [NAME ...]`` takes them from real runs.

``recovery.gif`` is a rank that is killed, the ranks that wait for it, and how the others go on,
photographed moment by moment; the others are single moments of scenes. ``replay.html`` is a page
that the slow link is photographed from. ``thumbnails``: the small moving pictures of the start page
(thumbnails.py). A run whose padded computing took longer than its pad, as on busy cores, is not
photographed: its picture would say so.
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from PIL import Image
from playwright.sync_api import Locator, Page, sync_playwright

import workbench as wb
from tests.browser import install, thumbnails
from workbench.recording.events import OVERRUN

PICTURES = Path(__file__).parents[2] / "assets" / "pictures"
WIDTH, SCALE = 860, 1.4  # px of a page, and of a file for each
FRAMES, MS, MOST_BYTES = 48, 125, 2_000_000  # of the moving one
COLORS = 96
# What a reader of the README cannot press.
BARE = """
.wb-grow, .wb-time, .wb-foot, .wb-tools, .wb-tabs, .wb-side, .wb-walk-open, .wb-trials,
.wb-hint, .wb-ov-next, .wb-co-links, .wb-tl-bar, .wb-pl-bar, .wb-meter { display: none !important; }
"""
MOMENT = """([root, way, first, last, frames]) => {
  const { table } = root.stage.known();
  const calls = table.calls.filter((c) => c.complete);
  const longest = (spans) => spans.reduce((a, b) => (b[1] - b[0] > a[1] - a[0] ? b : a));
  const [start, end] = {
    run: () => [table.from, table.to],
    largest: () => {
      const most = Math.max(...calls.map((c) => c.nbytes));
      const call = calls.findLast((c) => c.nbytes === most);
      return [call.start, call.end];
    },
    longest: () => longest(calls.map((c) => [c.start, c.end])),
    gap: () => longest(calls.slice(1).map((c, i) => [calls[i].end, c.start])),
  }[way]();
  const share = (i) => first + ((last - first) * i) / Math.max(1, frames - 1);
  return Array.from({ length: frames }, (_, i) => start + (end - start) * share(i));
}"""


@dataclass(frozen=True)
class Shot:
    """A scene of a run, from one share of the way to another. ``way``: the largest call, the
    longest one, the longest gap between two, or the whole run.
    """

    scene: str
    experiment: wb.Experiment
    way: str
    first: float
    last: float | None = None  # None: one picture


PADDED = wb.Experiment(ranks=4, threads=1, iterations=10, pad_compute="120 ms")
SHOTS = {
    "recovery": Shot(
        "collectives",
        PADDED.replace(
            network=wb.Network(latency="10 ms"),
            recovery="shrink",
            faults=(wb.Kill(rank=2, at_iteration=5),),
        ),
        "gap",
        -1.2,
        2.6,
    ),
    "frozen": Shot(
        "collectives",
        PADDED.replace(
            network=wb.Network(latency="10 ms"),
            faults=(wb.Freeze(rank=1, at_iteration=5, seconds=2),),
        ),
        "longest",
        0.6,
    ),
    "link": Shot(
        "collectives",
        PADDED.replace(network=wb.Network(links={(0, 1): wb.Link(latency="40 ms")})),
        "largest",
        0.5,
    ),
    "timeline": Shot(
        "timeline",
        wb.Experiment(
            strategy="ddp",
            task="mlp_layers",
            ranks=2,
            threads=1,
            iterations=6,
            pad_compute="300 ms",
            options={"bucket_cap_mb": 2},
            network=wb.Network(latency="1 ms", bandwidth="2 Gbit/s"),
        ),
        "run",
        1.0,
    ),
    "pipeline": Shot(
        "pipeline",
        wb.Experiment(
            strategy="pipeline",
            task="char_transformer",
            ranks=4,
            threads=1,
            iterations=4,
            pad_compute="80 ms",
            options={"schedule": "1f1b", "microbatches": 8},
        ),
        "run",
        1.0,
    ),
    "server": Shot(
        "server",
        wb.Experiment(
            strategy="parameter_server",
            ranks=5,
            threads=1,
            iterations=30,
            pad_compute="200 ms",
            faults=(wb.Slow(rank=3, factor=3),),
            options={"servers": 1, "consistency": "ssp", "staleness": 3},
        ),
        "run",
        0.62,
    ),
}


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    names = sys.argv[1:] or [*SHOTS, "thumbnails"]
    with browser_page() as page, tempfile.TemporaryDirectory() as folder:
        for name, shot in SHOTS.items():
            if name in names:
                path = PICTURES / "replay.html" if name == "link" else Path(folder, f"{name}.html")
                save(shot.experiment, path)
                write(name, photographed(page, path, shot))
        for name in names:
            if name.startswith("thumbnails"):
                thumbnails.take(page, name.partition("/")[2])
    for path in sorted(PICTURES.iterdir()):
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")
    wb.shutdown()


def save(experiment: wb.Experiment, path: Path) -> None:
    """Run the experiment and save the page that replays it. Exits where a pad was overrun."""
    run = wb.run(experiment)
    run.wait(timeout=120)
    pads = run.events.filter(pl.col("kind") == "metric", pl.col("name") == OVERRUN)
    # The first iterations of a rank are slower than all others; none is photographed.
    if late := pads.filter(pl.col("iteration") > 3).height:
        sys.exit(f"{path.stem}: computing took longer than its pad, {late} times: are cores busy?")
    run.to_html(path)


@contextmanager
def browser_page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=install.find(), args=["--no-sandbox", "--disable-gpu"]
        )
        size: dict[str, int] = {"width": WIDTH, "height": 1200}
        yield browser.new_page(viewport=size, device_scale_factor=SCALE)  # type: ignore[arg-type]
        browser.close()


def photographed(page: Page, path: Path, shot: Shot) -> list[Image.Image]:
    """Photograph the saved page's stage, moment by moment."""
    page.goto(path.as_uri())
    stage = page.locator(".wb-stage")
    stage.wait_for()
    page.wait_for_timeout(500)
    stage.evaluate("(root, scene) => root.stage.open(scene)", shot.scene)
    page.add_style_tag(content=BARE)
    ends = (shot.first, shot.first, 1) if shot.last is None else (shot.first, shot.last, FRAMES)
    moments = page.evaluate(MOMENT, [stage.element_handle(), shot.way, *ends])
    return [picture(page, stage, moment) for moment in moments]


def picture(page: Page, stage: Locator, moment: float) -> Image.Image:
    stage.evaluate("(root, t) => root.stage.goto(t)", moment)
    page.wait_for_timeout(300)  # the frame, and its words
    return Image.open(io.BytesIO(stage.screenshot())).convert("RGB")


def write(name: str, images: list[Image.Image]) -> None:
    """Write one picture, or all as a moving one, smaller until it is small enough."""
    if len(images) == 1:
        image = images[0].quantize(COLORS, dither=Image.Dither.NONE)
        image.save(PICTURES / f"{name}.png", optimize=True)
        return
    path = PICTURES / f"{name}.gif"
    size = (
        images[0].width,
        min(image.height for image in images),
    )  # words take a line more or less
    for width in (1000, 880, 760, 640):
        height = round(size[1] * width / size[0])
        small = [
            image.crop((0, 0, *size)).resize((width, height), Image.Resampling.LANCZOS)
            for image in images
        ]
        first, *rest = [one.quantize(COLORS, dither=Image.Dither.NONE) for one in small]
        first.save(path, save_all=True, append_images=rest, duration=MS, loop=0, optimize=True)
        if path.stat().st_size <= MOST_BYTES:
            return


if __name__ == "__main__":
    main()

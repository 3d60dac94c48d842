"""The README's pictures: ``python -m tests.browser.picture`` takes them again from real runs.

``ring.gif`` is one all-reduce of four ranks over equal, slow links, photographed moment by moment;
``replay.html`` is the page that it was photographed from. The still ones are scenes of three more
runs: DDP's overlap, a pipeline's bubble, a parameter server's staleness. ``thumbnails``: the small
moving ones of the start page, eight presets' (thumbnails.py).
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Locator, Page, sync_playwright

import workbench as wb
from tests.browser import install, thumbnails

PICTURES = Path(__file__).parents[2] / "assets" / "pictures"
FRAMES, MS, WIDTH, COLORS = 48, 120, 880, 64
EVEN = wb.Network(latency="10 ms")  # chunks in step; else the slowest link decides the picture
RING = wb.Experiment(
    strategy="data_parallel", task="lenet_digits", ranks=4, iterations=12, network=EVEN
)
# Scene -> the run that shows it. Computing is padded, links are paced: the cores are few.
STILLS = {
    "timeline": wb.Experiment(
        strategy="ddp",
        task="mlp_layers",
        ranks=2,
        iterations=6,
        pad_compute="60 ms",
        network=wb.Network(latency="1 ms", bandwidth="1 Gbit/s"),
    ),
    "pipeline": wb.Experiment(
        strategy="pipeline",
        task="char_transformer",
        ranks=4,
        iterations=4,
        pad_compute="40 ms",
        options={"schedule": "1f1b", "microbatches": 8},
    ),
    "server": wb.Experiment(
        strategy="parameter_server",
        ranks=5,
        iterations=30,
        pad_compute="40 ms",
        faults=(wb.Slow(rank=3, factor=3),),
        options={"servers": 1, "consistency": "ssp", "staleness": 3},
    ),
}
AT = {"server": 0.6}  # of the run's time: there the fast workers wait at the bound
GO = """(root, share) => {
  const { table } = root.stage.known();
  root.stage.goto(table.from + (table.to - table.from) * share);
}"""
# The last call that moved the largest tensor, and moments evenly over the way in which it is told.
MOMENTS = """([root, frames]) => {
  const calls = root.stage.known().table.calls.filter((c) => c.complete);
  const most = Math.max(...calls.map((c) => c.nbytes));
  const { start, end } = calls.findLast((c) => c.nbytes === most);
  return Array.from({ length: frames }, (_, i) => start + ((end - start) * i) / (frames - 1));
}"""


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    names = sys.argv[1:] or ["ring", *STILLS, "thumbnails"]
    with browser_page() as page, tempfile.TemporaryDirectory() as folder:
        if "ring" in names:
            replay = save(RING, PICTURES / "replay.html")
            images = moments(page, replay)
            first, *rest = [image.quantize(COLORS, dither=Image.Dither.NONE) for image in images]
            path = PICTURES / "ring.gif"
            first.save(path, save_all=True, append_images=rest, duration=MS, loop=0, optimize=True)
        for scene, experiment in STILLS.items():
            if scene in names:
                stage = opened(
                    page, save(experiment, Path(folder) / f"{scene}.html"), scene, AT.get(scene)
                )
                image = Image.open(io.BytesIO(stage.screenshot())).convert("RGB")
                image.quantize(128, dither=Image.Dither.NONE).save(PICTURES / f"{scene}.png")
        for name in names:
            if name.startswith("thumbnails"):
                thumbnails.take(page, name.partition("/")[2])
    for path in sorted(PICTURES.iterdir()):
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")
    wb.shutdown()


def save(experiment: wb.Experiment, path: Path) -> Path:
    """Run the experiment and save the page that replays it."""
    run = wb.run(experiment)
    run.wait(timeout=120)
    run.to_html(path)
    return path


@contextmanager
def browser_page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=install.find(), args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser.new_page(viewport={"width": WIDTH, "height": 1200})
        browser.close()


def opened(page: Page, path: Path, scene: str, at: float | None = None) -> Locator:
    """Open the saved page with this scene, and return its stage once it is drawn.

    ``at``: the share of the run's time to go to; None: its end.
    """
    page.goto(path.as_uri())
    stage = page.locator(".wb-stage")
    stage.wait_for()
    page.wait_for_timeout(500)
    stage.evaluate("(root, scene) => root.stage.open(scene)", scene)
    if at is None:
        page.get_by_role("button", name="To the newest").click()
    else:
        stage.evaluate(GO, at)
    page.wait_for_timeout(1500)
    return stage


def moments(page: Page, path: Path) -> list[Image.Image]:
    """Photograph one all-reduce of the saved page, moment by moment."""
    stage = opened(page, path, "collectives")
    images = []
    for moment in page.evaluate(MOMENTS, [stage.element_handle(), FRAMES]):
        stage.evaluate("(root, t) => root.stage.goto(t)", moment)
        page.wait_for_timeout(150)  # the frame, and its words
        images.append(Image.open(io.BytesIO(stage.screenshot())).convert("RGB"))
    return images


if __name__ == "__main__":
    main()

"""The small moving pictures of the start page, taken from recorded runs of their presets.

    python -m tests.browser.picture thumbnails            all of them
    python -m tests.browser.picture thumbnails/pipeline   one

Each is the canvas of one scene, photographed moment by moment on a light and on a dark ground, and
its first frame as a still.
"""

from __future__ import annotations

import io
import tempfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

import workbench as wb
from workbench.interface.gallery import GALLERY, GROUNDS, file_name
from workbench.presets.catalogue import presets

THUMBNAILS = Path(__file__).parents[2] / "assets" / "thumbnails"
SIZE = (400, 225)  # px of a file; cards show about 300
MARGIN = 8  # px
FRAMES, MS = 36, 110
QUALITY = 60  # of WebP; 100 is best
MOST_BYTES = 70_000  # of one picture
PAGE_HEIGHT = 1000


@dataclass(frozen=True)
class Shot:
    """The part of a run to photograph. ``way``: the function of MOMENTS that chooses the moments,
    with its two numbers; ``width``: of the page, in px.
    """

    scene: str
    canvas: str
    iterations: int
    way: str = "share"
    first: float = 0.0
    last: float = 1.0
    width: int = 560


SHOTS = {
    "ring": Shot("collectives", ".wb-ring", 20, "largest", width=480),
    "ddp": Shot("timeline", ".wb-tl-lanes", 6, "share", 0.55, 0.75),
    "server": Shot("server", ".wb-ps", 12, "share", 0.4, 0.7),
    "ssp": Shot("server", ".wb-ps", 30, "share", 0.5, 0.75, width=500),
    "pipeline": Shot("pipeline", ".wb-pl", 4, "share", 0.5, 0.75),
    "gossip": Shot("peers", ".wb-pe", 20, "share", 0.5, 0.6, width=480),
    "recovery": Shot("collectives", ".wb-ring", 300, "longest_gap", -60, 120, width=480),
    "apex": Shot("reinforcement", ".wb-rl", 600, "share", 0.6, 0.62),
}
MOMENTS = """([root, way, first, last, frames]) => {
  const { table } = root.stage.known();
  const calls = table.calls.filter((c) => c.complete);
  const most = Math.max(...calls.map((c) => c.nbytes));
  const span = table.to - table.from;
  const gaps = calls.slice(1).map((c, i) => [calls[i].end, c.start]).slice(calls.length >> 4);
  const gap = gaps.reduce((a, b) => (b[1] - b[0] > a[1] - a[0] ? b : a), [0, 0]);
  const largest = calls.findLast((c) => c.nbytes === most);
  const [start, end] = {
    largest: () => [largest.start, largest.end],
    share: () => [table.from + first * span, table.from + last * span],
    longest_gap: () => [gap[0] + first * 1e6, gap[1] + last * 1e6],
  }[way]();
  return Array.from({ length: frames }, (_, i) => start + ((end - start) * i) / (frames - 1));
}"""


def take(page: Page, only: str = "") -> None:
    """Run the presets, photograph them, and write the files; ``only``: this one's."""
    THUMBNAILS.mkdir(exist_ok=True)
    for name, stem in GALLERY.items():
        if only not in ("", stem):
            continue
        shot, experiment = SHOTS[stem], presets()[name].experiment
        experiment = experiment.replace(iterations=shot.iterations, stop_after=None)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.html"
            run = wb.run(experiment)
            run.wait(timeout=120)
            run.to_html(path)
            photograph(page, path, stem)


def photograph(page: Page, path: Path, stem: str) -> None:
    """Write the pictures of a saved page on both grounds."""
    shot = SHOTS[stem]
    page.set_viewport_size({"width": shot.width, "height": PAGE_HEIGHT})
    for dark, ground in enumerate(GROUNDS):
        page.emulate_media(color_scheme=ground, reduced_motion="no-preference")
        images = frames(page, path, shot)
        name = THUMBNAILS / file_name(stem, dark=bool(dark))
        write(images, name)
        still = images[len(images) // 2]
        still.save(name.with_name(file_name(stem, dark=bool(dark), still=True)), quality=80)
        print(f"{name.name}: {name.stat().st_size / 1e3:.0f} kB", flush=True)


def frames(page: Page, path: Path, shot: Shot) -> list[Image.Image]:
    """Photograph a scene's canvas, moment by moment."""
    page.goto(path.as_uri())
    stage = page.locator(".wb-stage")
    stage.wait_for()
    page.wait_for_timeout(500)
    stage.evaluate("(root, scene) => root.stage.open(scene)", shot.scene)
    page.wait_for_timeout(300)
    canvas = page.locator(f".wb-scenes > :not([hidden]) {shot.canvas}")
    images = []
    arguments = [stage.element_handle(), shot.way, shot.first, shot.last, FRAMES]
    for moment in page.evaluate(MOMENTS, arguments):
        stage.evaluate("(root, t) => root.stage.goto(t)", moment)
        page.wait_for_timeout(60)
        images.append(fitted(Image.open(io.BytesIO(canvas.screenshot())).convert("RGB")))
    return images


def fitted(image: Image.Image) -> Image.Image:
    """Return it in the size of a thumbnail, on its own ground."""
    ground = image.getpixel((0, 0))
    scale = min((SIZE[0] - 2 * MARGIN) / image.width, (SIZE[1] - 2 * MARGIN) / image.height)
    small = image.resize(
        (round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS
    )
    result = Image.new("RGB", SIZE, ground)
    result.paste(small, ((SIZE[0] - small.width) // 2, (SIZE[1] - small.height) // 2))
    return result


def write(images: list[Image.Image], path: Path) -> None:
    """Write an animated WebP; the worse it looks the fewer bytes are left for it."""
    first, *rest = images
    for quality in range(QUALITY, 9, -10):
        first.save(
            path, save_all=True, append_images=rest, duration=MS, loop=0, quality=quality, method=6
        )
        if path.stat().st_size <= MOST_BYTES:
            return

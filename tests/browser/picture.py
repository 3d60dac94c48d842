"""The README's moving picture: ``python -m tests.browser.picture`` makes it anew from a real run.

Four ranks train LeNet over equal, slow links; the run is saved as a page, and one of its
all-reduces is photographed moment by moment, as the page draws it.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

import workbench as wb

PICTURE = Path(__file__).parent.parent.parent / "assets" / "ring.gif"
FRAMES, MS, WIDTH, COLOURS = 48, 120, 880, 64
EVEN = wb.Network(latency="10 ms")  # chunks in step; else who is late decides the picture
# The last call that moved the largest tensor, and moments evenly over the way in which it is told.
MOMENTS = """([root, frames]) => {
  const calls = root.stage.known().table.calls.filter((c) => c.complete);
  const most = Math.max(...calls.map((c) => c.nbytes));
  const { start, end } = calls.findLast((c) => c.nbytes === most);
  return Array.from({ length: frames }, (_, i) => start + ((end - start) * i) / (frames - 1));
}"""


def main() -> None:
    exp = wb.Experiment(
        strategy="data_parallel", task="lenet_digits", ranks=4, iterations=12, network=EVEN
    )
    run = wb.run(exp)
    run.wait(timeout=120)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "run.html"
        run.to_html(page)
        images = photographs(page)
    first, *rest = [image.quantize(COLOURS, dither=Image.Dither.NONE) for image in images]
    first.save(PICTURE, save_all=True, append_images=rest, duration=MS, loop=0, optimize=True)
    print(f"{PICTURE.name}: {PICTURE.stat().st_size / 1e3:.0f} kB, {len(images)} frames")
    wb.shutdown()


def photographs(path: Path) -> list[Image.Image]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": 1200})
        page.goto(path.as_uri())
        stage = page.locator(".wb-stage")
        stage.wait_for()
        page.wait_for_timeout(500)
        stage.evaluate("(root) => root.stage.open('collectives')")
        images = []
        for moment in page.evaluate(MOMENTS, [stage.element_handle(), FRAMES]):
            stage.evaluate("(root, t) => root.stage.goto(t)", moment)
            page.wait_for_timeout(150)  # the frame, and its words
            images.append(Image.open(io.BytesIO(stage.screenshot())).convert("RGB"))
        browser.close()
        return images


if __name__ == "__main__":
    main()

"""The documentation site: built from the repository, every page opens from disk, offline."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.conftest import Watched

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="pip install -e '.[site]' (make test-all does)")
    target = tmp_path_factory.mktemp("built") / "site"
    words = ["--replays", "ring"]
    subprocess.run(
        [sys.executable, "-m", "docs.site", target, *words], cwd=ROOT, check=True, timeout=500
    )
    return target


@pytest.mark.full
def test_every_link_leads_to_a_page_and_an_anchor(site: Path) -> None:
    pages = {path.name: path.read_text() for path in site.glob("*.html")}
    del pages["404.html"]  # a server's: its links begin at the server's root
    assert len(pages) > 30
    bad = []
    for name, html in pages.items():
        for link in re.findall(r'(?:href|src)="([^"]+)"', html):
            path, _, anchor = link.partition("#")
            if re.match(r"\w+:", link) or link.startswith("//"):
                continue
            there = site / path if path else site / name
            if not there.exists() or (
                anchor and there.name in pages and f'id="{anchor}"' not in pages[there.name]
            ):
                bad.append(f"{name}: {link}")
    assert bad == []


@pytest.mark.full
def test_every_page_opens_without_network(site: Path, open_page: Callable[..., Watched]) -> None:
    watched = open_page(offline=True)
    for path in sorted(site.glob("*.html")):
        if path.name == "404.html":
            continue
        watched.page.goto(path.as_uri())
        assert watched.page.locator("h1").first.is_visible(), path.name
        for picture in watched.page.locator("article img").all():
            seen = picture.evaluate(
                "async i => { i.loading = 'eager'; await i.decode(); return i.naturalWidth }"
            )
            assert seen > 0, path.name


@pytest.mark.full
def test_the_front_page_has_a_replay_that_moves(
    site: Path, open_page: Callable[..., Watched]
) -> None:
    page = open_page(offline=True).page
    page.goto((site / "index.html").as_uri())
    frame = page.frame_locator("iframe.replay")
    tab = frame.get_by_role("tab", name="Collectives")
    tab.wait_for()
    frame.locator('[role="tab"][aria-selected="true"]', has_text="Collectives").wait_for()
    canvas = page.locator("iframe.replay")
    first = canvas.screenshot()
    for _ in range(40):  # a call of 20 ms is played in some seconds
        page.wait_for_timeout(250)
        if canvas.screenshot() != first:
            return
    raise AssertionError("nothing moved for ten seconds")

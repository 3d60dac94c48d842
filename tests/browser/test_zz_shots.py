import pytest
from tests.browser.conftest import *
from tests.browser.test_lab import RUN_ALL


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_shot_lab(lab, open_page, scheme):
    page = open_page(color_scheme=scheme).page
    page.goto(lab.format("01_ring_all_reduce.ipynb"), wait_until="domcontentloaded")
    page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook", timeout=60_000)
    if scheme == "dark":
        page.evaluate(
            """async () => { await window.jupyterapp.restored; await window.jupyterapp.commands.execute("apputils:change-theme", {theme: "JupyterLab Dark"}); }"""
        )
        page.wait_for_selector("body[data-jp-theme-light=false]", state="attached")
    page.evaluate(RUN_ALL)
    stage = page.locator(".jp-OutputArea-output .wb-stage").first
    stage.wait_for(timeout=60_000)
    stage.scroll_into_view_if_needed()
    wait_for(lambda: known(stage, "calls"), "a first call")
    page.wait_for_timeout(2200)
    page.screenshot(path=f"/tmp/lab-{scheme}.png")
    print(stage.evaluate("(r)=>r.stage.known().counters"), stage.locator(".wb-real").inner_text())
    # live text over time
    for i in range(8):
        page.wait_for_timeout(900)
        print(
            stage.locator(".wb-real").inner_text(),
            "|",
            stage.locator(".wb-state").inner_text(),
            "|",
            stage.locator(".wb-facts").inner_text(),
            "|",
            stage.locator(".wb-meter").inner_text(),
        )
    page.wait_for_timeout(4000)
    second = page.locator(".jp-OutputArea-output .wb-stage").nth(1)
    second.scroll_into_view_if_needed()
    page.wait_for_timeout(2500)
    page.screenshot(path=f"/tmp/lab2-{scheme}.png")


def test_shot_app(web_app, open_page):
    page = open_page(color_scheme="light").page
    page.goto(web_app)
    stage = page.locator(".wb-stage")
    stage.wait_for(timeout=30000)
    page.wait_for_timeout(800)
    page.screenshot(path="/tmp/app-0.png")
    page.get_by_role("button", name="Run", exact=True).click()
    wait_for(lambda: known(stage, "calls"), "a first call", 60)
    page.wait_for_timeout(2200)
    page.screenshot(path="/tmp/app-1.png")

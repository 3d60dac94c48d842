"""What is too long or too slow costs ``workbench serve`` nothing, and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interface.app.served import IN_USE, Reader, Served, end, launch
from tests.interface.app.visitor import Visitor
from tests.live import complete
from tools.soak import serving
from workbench.interface.app.lines import MOST_MESSAGE
from workbench.interface.app.reserved import foretold

HASTE = """
from workbench.interface.app import gate, lines
gate.SLOW_SECONDS, lines.STUCK_SECONDS = 3, 3.0
"""
LITTLE = 40.0  # MB that a server may grow by for other reasons: what is used for the first time


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose waits are shorter than they otherwise are."""
    served = launch(tmp_path_factory.mktemp("bounds"), "serve", first=IN_USE + HASTE)
    try:
        yield served.until_it_answers()
        assert Reader()(served.url + "/")[0] == 200, "it lives"
        assert "Traceback" not in served.log.read_text()
    finally:
        end(served)


@pytest.mark.full
def test_a_message_of_100_mb_is_not_even_read(hasty: Served) -> None:
    Reader()(hasty.url + "/")
    before = hasty.megabytes
    assert serving.long_message(hasty), "the line is closed"
    assert serving.message_of_many_parts(hasty), "the line is closed"
    assert hasty.megabytes - before < LITTLE


def test_a_message_that_is_just_short_enough_is_read(hasty: Served) -> None:
    async def tell() -> None:
        page = await Visitor(hasty).open()
        for _ in range(3):  # the count begins again with each message
            await page.tell("FormPart", {"type": "none", "filler": "a" * (MOST_MESSAGE - 2000)})
        form = page.parts["FormPart"]
        name = form["presets"][1]["name"]
        await page.tell("FormPart", {"type": "preset", "name": name})
        filled = form["filled"]
        await page.until(lambda: page.parts["FormPart"]["filled"] > filled, "the preset")
        page.close()

    complete(tell())


@pytest.mark.full
def test_requests_that_never_end_are_ended(hasty: Served) -> None:
    before = hasty.megabytes
    assert serving.slow_requests(hasty, lines=50, seconds=60) == 0
    assert hasty.megabytes - before < LITTLE


@pytest.mark.full
def test_a_page_that_reads_nothing_is_cut_off_and_the_others_hear_on(hasty: Served) -> None:
    async def watch() -> None:
        owner = await Visitor(hasty).open()
        address = await serving.start(owner, serving.LONG)
        page = await Visitor(hasty, address, owner.reader).open()
        await page.until(lambda: page.parts["BarPart"].get("watch"), "the address of viewers")
        deaf = await Visitor(hasty, page.parts["BarPart"]["watch"].lstrip(".")).open()
        await deaf.until(lambda: deaf.events > 3, "that it is told of the run")
        deaf.stop_reading()
        held = most = hasty.megabytes
        for _ in range(240):
            await asyncio.sleep(0.5)
            most = max(most, hasty.megabytes)
            if deaf.is_cut_off():
                break
        assert deaf.is_cut_off()
        assert most - held < 2 * LITTLE
        heard = page.events
        await page.until(lambda: page.events > heard + 5, "more of the run")
        for one in (deaf, page, owner):
            one.close()

    complete(watch())


def test_a_visitors_path_is_not_run_to_foretell_its_memory(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    traits = "TRAITS = Traits(messages='neighbors')"
    file.write_text(f"raise SystemExit('it ran')\n{traits}\nclass Config: pass\n")
    assert foretold({"strategy": f"{file}:Config", "ranks": 4}) > 0

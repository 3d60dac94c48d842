"""A page that is open while a run loses a rank hears of it, and which ranks go on."""

from __future__ import annotations

import polars as pl

import workbench as wb
from tests.live import LONG, lenet, over_in_the_end, training
from tests.views.feeding import join


def test_an_open_page_hears_of_a_recovery_while_it_happens() -> None:
    exp = lenet(ranks=3, recovery="replace", iterations=LONG)
    with over_in_the_end(wb.run(exp)) as run:
        training(run)
        client, page = join(run)
        assert client.last["run"]["recoveries"] == []
        assert client.last["run"]["recovery"] == "replace"
        run.kill(1)
        client.until(lambda: client.last["run"]["recoveries"], what="the recovery")
        (recovery,) = client.last["run"]["recoveries"]
        assert dict(recovery["lost"]) == {"1": "killed"}
        assert (*recovery["members"], *recovery["fresh"]) == (0, 1, 2, 1)

        here: set[int] = set()
        looked = 0

        def joined() -> bool:
            nonlocal looked
            new, looked = client.tables[looked:], len(client.tables)
            for rows in new:
                here.update(rows.filter(pl.col("kind").cast(pl.String) == "rebuild")["rank"])
            return here == {0, 1, 2}

        client.until(joined, what="the rows of the next group")
        assert client.last["state"] == "running" and client.last["failure"] is None
        page.leave()
        run.stop()
        assert run.wait(timeout=60).ok

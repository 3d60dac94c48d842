"""The still picture of a run with a parameter server: what it shows are the run's own rows."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import pairwise

import polars as pl
import pytest

import workbench as wb
from tests.synthetic import training
from tests.views.test_still import words
from workbench.store.event_store import Store
from workbench.views.stills.server import Served
from workbench.views.stills.still import select
from workbench.views.stills.svg import svg
from workbench.views.stills.svg_server import AGES, BOX, MOST, marks

UNEVEN = wb.Experiment(
    strategy="parameter_server",
    ranks=5,
    iterations=6,
    options={"servers": 2, "placement": (0.75, 0.25)},
    network=wb.Network(bandwidth="100 Mbit/s"),
)


def served(store: Store) -> Served:
    selected = select(store).selected
    assert selected is not None
    return selected


def boxes_of(still: Served) -> list[ET.Element]:
    drawn = [ET.fromstring(mark) for mark in marks(still)]
    return [one for one in drawn if one.tag == "rect" and one.attrib["width"] == str(BOX)]


@pytest.fixture(scope="module")
def store() -> Store:
    run = wb.run(UNEVEN)
    run.wait(60)
    return run.store


def test_messages_and_waits_are_rows_of_one_moment(store: Store) -> None:
    still, events = served(store), store.events
    moved = events.filter(pl.col("kind").is_in(["push", "pull"]))
    assert still.messages, "no message is shown"
    moments = set()
    for one in still.messages:
        rows = moved.filter(kind=one.kind, rank=one.worker, peer=one.server)
        lasts = rows["end_ns"] - rows["start_ns"]
        at = (rows["start_ns"] + (lasts * one.share).round().cast(int)).to_list()
        moments.add(frozenset(round(moment / 1e4) for moment in at))  # rounding of the share
    assert frozenset.intersection(*moments), "they are not of one moment"
    assert [worker for worker, *_ in still.workers] == [2, 3, 4]
    assert all(0 <= iteration < 6 for _, iteration, _ in still.workers)
    assert f"{sum(one.kind == 'push' for one in still.messages)} push" in still.words


def test_servers_have_their_share_and_a_box_as_high(store: Store) -> None:
    still = served(store)
    assert [round(share, 3) for _, share, _ in still.servers] == [0.75, 0.25]
    applied = store.events.filter(kind="apply")["version"].max()
    assert all(0 <= version <= applied for *_, version in still.servers)
    boxes = boxes_of(still)
    high, low = (float(node.attrib["height"]) for node in boxes)
    assert high / low == pytest.approx(3, rel=0.01)
    picture = words(svg(select(store)))
    assert "Who pushed and pulled" in picture and "75 %, version" in " ".join(picture)


def test_places_are_there_before_rows() -> None:
    still = served(Store.from_frame(training(3).clear(), {"experiment": UNEVEN.to_yaml()}))
    assert [rank for rank, *_ in still.servers] == [0, 1]
    assert [worker for worker, *_ in still.workers] == [2, 3, 4] and not still.messages
    empty = Store.from_frame(training(3).clear(), {"experiment": UNEVEN.to_yaml()})
    assert words(svg(select(empty))).count("starting") == 3


def test_many_ranks_fit_and_what_is_left_out_is_said() -> None:
    many = Served(
        servers=tuple((rank, 1 / 16, 0) for rank in range(16)),
        workers=tuple((rank, 1, 1) for rank in range(16, 48)),
    )
    drawn = [ET.fromstring(mark) for mark in marks(many)]
    boxes = boxes_of(many)
    assert len(boxes) == MOST
    tops = sorted((float(b.attrib["y"]), float(b.attrib["height"])) for b in boxes)
    assert all(y + height <= below for (y, height), (below, _) in pairwise(tops))
    assert any(node.text == f"{48 - 2 * MOST} more ranks" for node in drawn)


def test_a_run_without_servers_keeps_its_ring() -> None:
    spec = wb.Experiment(ranks=4).to_yaml()
    assert select(Store.from_frame(training(3), {"experiment": spec})).selected is None


def test_a_disc_is_tinted_by_age_and_stands_at_the_wall_that_stops_it() -> None:
    still = Served(
        servers=((0, 1.0, 9),),
        workers=((1, 3, 9), (2, 5, 7), (3, 2, 0)),
        queued=((0, 2),),
        times=((1, 0.5, 0.2, 0.3),),
        bound=3,
    )
    drawn = [ET.fromstring(mark) for mark in marks(still)]
    discs = [one for one in drawn if one.tag == "circle" and one.attrib["fill"] != "none"]
    assert [one.attrib["fill"] for one in discs] == [AGES[0], AGES[2], AGES[-1]]
    first, ahead, last = (float(one.attrib["cx"]) for one in discs)
    (wall,) = {
        float(one.attrib["x1"])
        for one in drawn
        if one.tag == "line" and one.attrib["x1"] == one.attrib["x2"] and one.attrib["x1"] < "3"
    }
    assert last < first < ahead < wall, "a worker that is ahead is nearer to the wall"
    texts = [one.text or "" for one in drawn if one.tag == "text"]
    assert "iteration 6, version 7, 2 behind" in texts and "in its queue: 1" in texts
    assert "wall: 3 ahead" in texts
    free = [ET.fromstring(mark) for mark in marks(Served(still.servers, still.workers))]
    assert not any("wall" in (one.text or "") for one in free), "without a bound there is no wall"


def test_gradients_wait_in_the_queue_of_a_slow_server() -> None:
    crowd = wb.Experiment(
        strategy="parameter_server",
        ranks=5,
        iterations=8,
        options={"consistency": "asp"},
        optimizer="adam",
        faults=wb.Slow(rank=0, factor=20),
    )
    run = wb.run(crowd)
    run.wait(60)
    still = served(run.store)
    assert still.queued and still.bound is None, still
    assert "wait" in still.words
    queue = run.queue()
    assert {worker for _, worker in still.queued} <= set(queue["worker"])
    assert [worker for worker, *_ in still.times] == [1, 2, 3, 4]
    assert all(0 <= sum(shares) <= 1.001 for _, *shares in still.times)


def test_the_moment_is_one_at_which_all_workers_train() -> None:
    """A slow worker is alone at the end: then the others hold what is long outdated."""
    run = wb.run(
        wb.Experiment(
            strategy="parameter_server",
            ranks=4,
            iterations=20,
            pad_compute="20 ms",
            options={"consistency": "asp"},
            faults=(wb.Slow(rank=1, factor=4),),
        )
    )
    run.wait(60)
    still = served(run.store)
    first, *others = still.workers
    assert first[1] < 15, "the slow worker is done"
    assert all(still.newest - version < 15 for _, _, version in others), still

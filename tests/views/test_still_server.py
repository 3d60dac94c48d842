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
from workbench.views.stills.svg_server import MOST, marks

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


@pytest.fixture(scope="module")
def store() -> Store:
    run = wb.run(UNEVEN)
    run.wait(60)
    return run.store


def test_messages_and_who_waits_are_rows_of_one_moment(store: Store) -> None:
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
    boxes = [node for mark in marks(still) for node in [ET.fromstring(mark)] if node.tag == "rect"]
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
    boxes = [node for node in drawn if node.tag == "rect"]
    assert len(boxes) == MOST
    tops = sorted((float(b.attrib["y"]), float(b.attrib["height"])) for b in boxes)
    assert all(y + height <= below for (y, height), (below, _) in pairwise(tops))
    assert any(node.text == f"{48 - 2 * MOST} more ranks" for node in drawn)


def test_a_run_without_servers_keeps_its_ring() -> None:
    spec = wb.Experiment(ranks=4).to_yaml()
    assert select(Store.from_frame(training(3), {"experiment": spec})).selected is None

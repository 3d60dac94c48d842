"""The still picture: marks are rows, words and places are there before rows, and it is safe SVG."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise

import polars as pl
import pytest

import workbench as wb
from tests.synthetic import MICRO, loss_row, ring_call, table, training
from workbench.front_end.assets import theme
from workbench.front_end.svg import INK, round_ticks
from workbench.store.event_store import Store
from workbench.views.stills.calls import calls
from workbench.views.stills.still import POINTS, Still, select
from workbench.views.stills.svg import RING, _layout, svg

SVG = "{http://www.w3.org/2000/svg}"


def stored(events: pl.DataFrame, ranks: int = 4, **metadata: str) -> Store:
    spec = wb.Experiment(ranks=ranks, iterations=200).to_yaml()
    return Store.from_frame(events, {"experiment": spec, **metadata})


def words(picture: str) -> list[str]:
    return [node.text or "" for node in ET.fromstring(picture).iter(f"{SVG}text")]


def test_the_ring_shows_which_sends_to_which_in_the_newest_complete_call() -> None:
    events = training(5)
    unfinished = events.filter((pl.col("op") < 4) | (pl.col("rank") != 2))
    still = select(stored(unfinished))
    assert still.links == ((0, 1), (1, 2), (2, 3), (3, 0))
    complete = [events.filter(pl.col("op") == op) for op in range(4)]
    lasted = sorted((call["end_ns"].max() - call["start_ns"].min()) / 1e6 for call in complete)
    assert f"of its {lasted[1]:.2f} ms" in still.call, "the usual length, whichever is the newest"
    assert "all-reduce (ring) of gradients" in still.call
    star = [row | {"peer": 0} for row in ring_call(9, 10**13) if row["kind"] == "send"]
    outer = [row for row in ring_call(9, 10**13) if row["kind"] == "collective"]
    others = select(stored(table(star + outer)))
    assert others.links == ((0, 0), (1, 0), (2, 0), (3, 0)) and others.flights == ()


def test_an_outlier_is_not_shown_for_the_calls_that_it_is_one_of() -> None:
    rows = [row for op in range(5) for row in ring_call(op, 10**12 + op * 10**8)]
    rows += ring_call(5, 2 * 10**12, hop=400 * MICRO)  # ten times as long, and the newest
    lasted = float(select(stored(table(rows))).call.split(" of its ")[1].split(" ms")[0])
    assert lasted < 1


def test_a_picture_has_a_chunk_for_each_link_where_there_is_such_a_moment() -> None:
    """A rank may send its next chunk before its neighbor has taken the one ahead of it."""
    events = table(ring_call(0, 10**12))
    p = pl.col
    early = p("start_ns") - pl.when((p("kind") == "send") & (p("rank") == 1)).then(30 * MICRO)
    events = events.with_columns(start_ns=pl.coalesce(early, "start_ns"))
    still = select(stored(events))
    links = [(one.source, one.target) for one in still.flights]
    assert sorted(links) == [(0, 1), (1, 2), (2, 3), (3, 0)]


def test_the_largest_call_of_the_newest_iteration_is_shown() -> None:
    """Gradients come one after another: the last may be the 40 bytes of a bias."""
    gradients = [(0, "before", 999_000), (1, "small", 40), (2, "large", 246_824), (3, "last", 40)]
    rows = [
        row | {"name": name if row["kind"] == "collective" else "", "iteration": min(op, 1)}
        for op, name, nbytes in gradients
        for row in ring_call(op, 10**12 + op * 10**7, nbytes=nbytes)
    ]
    assert "of large," in select(stored(table(rows))).call


def test_a_call_is_complete_when_all_that_take_part_are_through() -> None:
    events = training(3).filter(pl.col("kind") != "metric")
    assert calls(events)["complete"].to_list() == [True] * 3
    for rank in range(4):
        gone = (pl.col("kind") == "collective") & (pl.col("rank") == rank) & (pl.col("op") == 1)
        assert calls(events.filter(~gone)).sort("op")["complete"].to_list() == [True, False, True]
    only_named = events.filter((pl.col("rank") != 3) | (pl.col("op") != 2))  # 3 is a peer
    assert calls(only_named).sort("op")["complete"].to_list() == [True, True, False]


@pytest.mark.parametrize(
    "other", [{"group": "metrics"}, {"group": "control"}, {"collective": "p2p"}, {"kind": "wait"}]
)
def test_messages_metrics_and_calls_without_chunks_are_not_shown(other: dict[str, str]) -> None:
    still = select(stored(table([row | other for row in ring_call(0, 1000)])))
    assert (still.call, still.links, still.flights) == ("", (), ())


def test_of_cells_on_ranks_messages_are_shown_that_are_newer_than_any_collective() -> None:
    message = {"collective": "p2p", "algorithm": "", "phase": "", "name": "", "step": 0, "chunk": 0}
    send = next(row for row in ring_call(0, 2000) if row["kind"] == "send")
    send |= message | {"rank": 0, "peer": 2, "start_ns": 10**12, "end_ns": 10**12 + 10}
    there = send | {"kind": "recv", "rank": 2, "peer": 0, "end_ns": 10**12 + 100, "lane": "recv"}
    events = table([*ring_call(0, 1000), send, there])
    cells = Store.from_frame(events, {"cells": "2", "ranks": "4"})
    still = select(cells)
    assert still.links == ((0, 2),) and [one.chunk for one in still.flights] == [0]
    assert still.call.startswith("1 message, ") and still.call.endswith("1 message on the way")
    assert select(stored(events)).links == ((0, 1), (1, 2), (2, 3), (3, 0)), "of a run: collectives"


def test_chunks_are_where_their_rows_say_at_the_busiest_moment() -> None:
    events = training(1)
    still = select(stored(events))
    took = {kind: events.filter(pl.col("kind") == kind) for kind in ("send", "recv")}
    flights = []
    for send in took["send"].iter_rows(named=True):
        (there,) = took["recv"].filter(
            (pl.col("rank") == send["peer"]) & (pl.col("step") == send["step"])
        )["end_ns"]
        key = send["rank"], send["peer"], send["step"], send["chunk"]
        flights.append((*key, send["start_ns"], there))
    load = lambda t: sum(start <= t < end for *_, start, end in flights)  # noqa: E731
    moments = [
        start + shown.share * (end - start)
        for shown in still.flights
        for *key, start, end in flights
        if key == [shown.source, shown.target, shown.step, shown.chunk]
    ]
    assert len(still.flights) == load(moments[0]) > 1
    assert max(moments) - min(moments) <= 1
    assert load(moments[0]) == max(load((start + end) // 2) for *_, start, end in flights)


def test_marks_in_the_picture_are_those_that_were_selected() -> None:
    picture = svg(select(stored(training(3), ok="True")))
    root = ET.fromstring(picture)
    cells = [r for r in root.iter(f"{SVG}rect") if r.get("stroke") == INK["comm"]]
    assert len(cells) == len(select(stored(training(3))).flights) + 1  # one is the key's
    halos = [c for c in root.iter(f"{SVG}circle") if c.get("stroke-dasharray")]
    assert len(halos) == len(select(stored(training(3))).waiting) + 1
    cx, cy, radius = RING
    for cell in cells[:-1]:
        x, y = (
            float(cell.get(at)) + float(cell.get(of)) / 2
            for at, of in (("x", "width"), ("y", "height"))
        )
        assert math.hypot(x - cx, y - cy) < radius
    assert root.get("role") == "img" and root.find(f"{SVG}title").text


def test_places_and_words_are_there_before_there_is_anything() -> None:
    store = Store({"experiment": wb.Experiment(ranks=4, iterations=200).to_yaml()})
    texts = words(svg(select(store)))
    assert "4 processes are about to train one model." in texts
    assert {"0", "1", "2", "3", "200", "Loss"} <= set(texts)
    assert ET.fromstring(svg(select(Store()))) is not None


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({}, "4 processes are training one model together: iteration 30 of 200, loss 0.59."),
        (
            {"ok": "True"},
            "4 processes trained one model together: 30 iterations, loss 0.59 at the end.",
        ),
        ({"ok": "False", "error": "rank 2 was killed.\nmore"}, "rank 2 was killed."),
    ],
)
def test_one_sentence_says_what_is_known(metadata: dict[str, str], says: str) -> None:
    store = stored(training(30), **metadata)
    assert select(store).sentence == says and says in words(svg(select(store)))
    assert (INK["fault"] in svg(select(store))) == ("error" in metadata)


@pytest.mark.parametrize("most", [0.07, 1.0, 2.5, 34.7, 97.3, 136.1, 999.0])
def test_an_axis_has_three_to_six_round_numbers_up_to_its_end(most: float) -> None:
    ticks = round_ticks(most)
    step = ticks[1]
    assert 3 <= len(ticks) <= 6 and ticks[0] == 0 and most - step < ticks[-1] <= most * (1 + 1e-9)
    assert f"{step:e}"[:8] in ("1.000000", "2.000000", "5.000000")
    assert all(math.isclose(b - a, step) for a, b in pairwise(ticks))
    assert round_ticks(0) == [0]


@pytest.mark.parametrize(
    ("ranks", "says"), [(2, "The 2 processes of a job."), (1, "One process of a job.")]
)
def test_a_job_of_the_users_own_is_not_said_to_be_at_work(ranks: int, says: str) -> None:
    """Its record does not say whether it is over, nor what it trains."""
    calls = training(1).filter((pl.col("kind") != "metric") & (pl.col("rank") < ranks))
    store = Store.from_frame(calls, {"ranks": str(ranks)})
    assert select(store).sentence == says


def test_a_long_loss_curve_is_thinned_and_keeps_its_ends() -> None:
    rows = [loss_row(i, 10**12 + i, 2.0 / (1 + i)) for i in range(3000)]
    rows.append(loss_row(3000, 10**13, float("nan")))
    losses = select(stored(table(rows))).losses
    assert len(losses) == POINTS and losses[0] == (0, 2.0) and losses[-1][0] == 2999


def test_words_of_users_cannot_leave_the_picture() -> None:
    evil = '</title><script>alert("x")</script>&'
    rows = [row | {"name": evil, "algorithm": evil} for row in ring_call(0, 10**12)]
    picture = svg(select(stored(table(rows), error=evil)))
    assert "<script" not in picture and evil in ET.fromstring(picture).find(f"{SVG}title").text


@pytest.mark.parametrize("ranks", [1, 2, 16, 64])
def test_any_number_of_ranks_fits(ranks: int) -> None:
    store = stored(training(2, ranks=ranks) if ranks > 1 else table([loss_row(0, 5, 1.0)]), ranks)
    root = ET.fromstring(svg(select(store)))
    _, _, width, height = map(float, root.get("viewBox").split())
    for circle in root.iter(f"{SVG}circle"):
        x, y, r = (float(circle.get(name)) for name in ("cx", "cy", "r"))
        assert min(x, y) >= r and x + r <= width and y + r <= height
    assert svg(Still(ranks, "")).count("<circle") >= ranks


def test_its_inks_are_the_theme_s_light_ones() -> None:
    for name, ink in INK.items():
        match = re.search(rf"--{name}:light-dark\((#\w+),", theme())
        assert match and match[1] == ink, name


def test_ranks_of_a_host_are_in_its_box() -> None:
    for levels, ranks in (((4, 2), 8), ((2, 4), 8), ((2, 2, 2), 8)):
        layout = _layout(ranks, levels[0])
        assert len(layout.boxes) == ranks // levels[0] and len(layout.places) == ranks
        for rank, (x, y) in enumerate(layout.places):
            cx, cy = layout.boxes[rank // levels[0]]
            assert math.dist((x, y), (cx, cy)) + layout.node <= layout.half, "inside its box"
        assert min(math.dist(a, b) for a, b in combinations(layout.boxes, 2)) >= 2 * layout.half
    hosts = wb.Network(levels=(4, 2), between=wb.Link(latency="1 ms"))
    exp = wb.Experiment(ranks=8, iterations=1, network=hosts, all_reduce="hierarchical", threads=1)
    run = wb.run(exp)
    assert run.wait(60, progress=False).ok
    picture = svg(select(run.store))
    assert "host 0" in picture and "host 1" in picture and "host 2" not in picture
    assert not _layout(8, 0).boxes, "no hosts are known"


def test_where_nothing_is_trained_the_whole_call_stands_beside_its_moment() -> None:
    """A check's case has no loss: each rank's chunks and waits fill the place of the curve."""
    call = training(1).filter(pl.col("kind") != "metric")
    still = select(Store.from_frame(call, {"checked": "a case", "ranks": "4"}))
    assert not still.trains and still.lanes is not None
    sends = call.filter(kind="send").select("rank", "peer", "step", "chunk").unique()
    drawn = [bar for bar in still.lanes.bars if bar[1] == "comm"]
    assert len(drawn) == len(sends) and {rank for rank, *_ in drawn} == {0, 1, 2, 3}
    assert all(0 <= start <= end <= 1 for _, _, start, end in still.lanes.bars)
    assert any(start <= still.lanes.at <= end for _, _, start, end in drawn), "most are under way"
    picture = svg(still)
    assert "The whole call, rank by rank" in picture and ">Loss<" not in picture
    whole = still.lanes.milliseconds
    ticks = [float(one[:-3]) for one in words(picture) if re.fullmatch(r"[\d.,]+ ms", one)]
    assert ticks == pytest.approx(round_ticks(whole)[1:])
    assert "The whole call" not in svg(select(stored(training(5)))), "a run has its loss there"


# ---- what was made by us

SLOW = wb.Link(latency="20 ms")


def dashes(picture: str) -> int:
    """Return how many links are drawn dashed as ours, without that of the key."""
    drawn = [
        one for one in ET.fromstring(picture).iter(f"{SVG}line") if one.get("stroke-dasharray")
    ]
    return len(drawn) - 1 if drawn else 0


@pytest.mark.parametrize(
    ("network", "emulated", "dashed"),
    [
        (wb.Network(), "", 0),
        (wb.Network(links={(0, 1): SLOW}), "link 0 → 1 emulated: 20 ms", 1),
        (wb.Network(links={(0, 1): wb.Link(down=True)}), "link 0 → 1 cut", 1),
        (
            wb.Network(links={(a, (a + 1) % 4): SLOW for a in range(4)}),
            "4 links emulated: 20 ms",
            4,
        ),
        (wb.Network(latency="5 ms"), "all links emulated: 5 ms", 4),
        (wb.Network(levels=(2, 2), between=SLOW), "links between hosts emulated: 20 ms", 2),
    ],
)
def test_what_is_emulated_is_said_and_its_links_are_dashed(
    network: wb.Network, emulated: str, dashed: int
) -> None:
    spec = wb.Experiment(ranks=4, iterations=200, network=network).to_yaml()
    picture = svg(select(Store.from_frame(training(5), {"experiment": spec})))
    assert dashes(picture) == dashed
    assert (emulated in " ".join(words(picture))) and (emulated in picture.split("</title>")[0])
    assert ("emulated" in picture) == ("emulated" in emulated or ("cut" in emulated))


def test_a_link_that_was_changed_by_hand_is_dashed_and_one_that_was_restored_is_not() -> None:
    def fault(name: str, at: int, group: str, value: float) -> dict[str, object]:
        more = {"kind": "fault", "name": name, "group": group, "value": value, "op": -1}
        return loss_row(0, 0, 0.0) | more | {"start_ns": at, "end_ns": at, "rank": -1, "peer": 1}

    events = training(3)
    last = int(events["end_ns"].max())
    by_hand = [fault("link", last, "0->1", 0.02), fault("slow", last, "", 3.0)]
    picture = svg(select(stored(pl.concat([events, table(by_hand)]))))
    assert dashes(picture) == 1
    assert "link 0 → 1 emulated: 20 ms · rank 1 slowed ×3" in words(picture)
    by_hand += [fault("link", last + 1, "0->1", 0.0), fault("slow", last + 1, "", 1.0)]
    picture = svg(select(stored(pl.concat([events, table(by_hand)]))))
    assert dashes(picture) == 0 and "emulated" not in picture


def test_what_is_padded_or_random_is_said_too() -> None:
    spec = wb.Experiment(ranks=4, pad_compute="20 ms", faults=(wb.Slow(rank=2, factor=4),))
    picture = svg(select(Store.from_frame(training(2), {"experiment": spec.to_yaml()})))
    assert "compute padded to 20 ms · rank 2 slowed ×4" in words(picture)


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_chunk_that_is_passed_on_is_on_one_link_at_a_time(pieces: int) -> None:
    """Along 0 -> 1 -> 2 -> 3: a rank receives a piece and sends it on in one pass, whose rows have
    the same span; the next piece is still to come then.
    """
    base = next(row for row in ring_call(0, 0) if row["kind"] == "send")
    rows, tick = [row for row in ring_call(0, 0) if row["kind"] == "collective"], 10 * MICRO
    for slot in range(pieces):
        for rank in range(4):  # it has the piece from then on, and takes so long
            own = base | {"rank": rank, "slot": slot, "chunk": 0, "start_ns": tick * (rank + slot)}
            own["end_ns"] = own["start_ns"] + tick // 2
            if rank > 0:
                rows.append(own | {"kind": "recv", "peer": rank - 1, "step": rank - 1})
            if rank < 3:
                rows.append(own | {"kind": "send", "peer": rank + 1, "step": rank})
    for number, row in enumerate(rows):
        row["seq"] = number
    still = select(stored(table(rows)))
    assert [one.chunk for one in still.flights] == [0]

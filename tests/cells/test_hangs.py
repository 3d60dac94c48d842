"""Which rank waits for which, in words: no processes."""

from __future__ import annotations

from typing import Any

from workbench.cells.hangs import SECOND, Wait, all_waits, explain, lasts, stays, waits
from workbench.store.event_store import NOW_SCHEMA

NOW = 100 * SECOND


def lane(rank: int, peer: int, *, kind: str = "wait", seconds: float = 2.0, lane: str = "recv"):
    """A lane's status in the order of NOW_SCHEMA."""
    fields = {"rank": rank, "peer": peer, "kind": kind, "lane": lane, "op": 0}
    fields["since_ns"] = NOW - int(seconds * SECOND)
    return tuple(fields.get(name, "") for name in NOW_SCHEMA)


def place(line: int, source: str, call: str = "recv") -> dict[str, Any]:
    return {"line": line, "source": source, "call": call}


def test_only_waits_of_running_ranks_that_have_lasted_count() -> None:
    doing = [lane(0, 1), lane(1, 0, seconds=0.5), lane(2, 0), lane(3, 1, kind="forward")]
    assert [wait.rank for wait in waits(doing, {0, 1, 3}, NOW - SECOND)] == [0]


def test_of_several_lanes_the_one_that_names_a_peer_and_waits_longest_counts() -> None:
    doing = [
        lane(0, -1, kind="collective", lane="comm"),
        lane(0, 2),
        lane(0, 1, seconds=9, lane="send"),
    ]
    assert waits(doing, {0}, NOW - SECOND) == [Wait(0, 1, "send", 0, NOW - 9 * SECOND)]
    assert waits(doing[:1], {0}, NOW - SECOND)[0].peer == -1


def test_a_deadlock_is_told_with_call_line_and_cycle() -> None:
    blocked = [Wait(0, 1, "recv", 0, NOW - 3 * SECOND), Wait(1, 0, "recv", 0, NOW - 3 * SECOND)]
    places = {0: place(4, "dist.recv(x, src=1)"), 1: place(7, "dist.recv(x, src=0)")}
    first, second, meaning = explain(blocked, places, {}, NOW)
    assert first == "rank 0 has waited 3 s for rank 1 in recv, line 4: dist.recv(x, src=1)"
    assert second == "rank 1 has waited 3 s for rank 0 in recv, line 7: dist.recv(x, src=0)"
    assert meaning.startswith("This is a deadlock: rank 0 waits for rank 1, which waits for rank 0")


def test_a_wait_for_a_rank_that_computes_is_not_a_deadlock() -> None:
    blocked = [Wait(0, 1, "recv", 0, NOW - 2 * SECOND)]
    places = {0: place(2, "dist.recv(x, 1)"), 1: place(3, "time.sleep(9)", "")}
    assert explain(blocked, places, {}, NOW) == [
        "rank 0 has waited 2 s for rank 1 in recv, line 2: dist.recv(x, 1)",
        "rank 1 is at line 3: time.sleep(9)",
    ]


def test_a_wait_for_a_rank_that_has_ended_is_in_vain() -> None:
    blocked = [Wait(rank, 1, "comm", 0, NOW - SECOND) for rank in (0, 2)]
    *_, last = explain(blocked, {}, {1: "has ended this cell", 3: "has ended this cell"}, NOW)
    assert last == "rank 1 has ended this cell: ranks 0, 2 wait for it in vain."


def test_a_rank_in_a_call_without_computing_waits_though_no_lane_says_so() -> None:
    def at(line: int, cpu: float, distributed: bool = True) -> dict[str, Any]:
        state = {"distributed": distributed, "cpu_ns": int(cpu * SECOND)}
        return place(line, "dist.init_process_group()", "init_process_group") | state

    first = stays({}, {0: at(1, 5), 1: at(1, 5), 2: at(1, 5), 3: at(1, 5, False)}, NOW)
    assert set(first) == {0, 1, 2}
    later = NOW + 2 * SECOND
    # 1 has computed, 2 has gone on
    then = stays(first, {0: at(1, 5.01), 1: at(1, 6), 2: at(2, 5.01)}, later)
    assert [then[rank].since_ns for rank in range(3)] == [
        NOW,
        later,
        later,
    ]  # 1 computed, 2 went on
    wait = Wait(1, 0, "recv", 0, NOW)
    assert all_waits([wait], {}, then, later - SECOND) == [Wait(0, -1, "", -1, NOW), wait]


def test_a_message_that_is_awaited_beside_computing_stops_no_rank() -> None:
    wait = Wait(0, 1, "recv", 0, NOW)
    assert all_waits([wait], {0: place(3, "time.sleep(5)", "")}, {}, NOW) == []
    assert all_waits([wait], {0: place(3, "work.wait()", "wait")}, {}, NOW) == [wait]


def test_a_rank_that_gives_no_answer_is_named() -> None:
    lines = explain([Wait(0, 2, "recv", 0, NOW)], {}, {}, NOW, silent=[0, 2])
    assert (
        lines[1] == "rank 2 gives no answer: it is stopped, or in a call that lets nothing else run"
    )
    assert len(lines) == 2


def test_a_wait_counts_once_two_looks_found_the_rank_in_it_and_its_peer_is_long_gone() -> None:
    wait, here = Wait(1, 0, "recv", 0, NOW - 3 * SECOND), {1: place(5, "work.wait()", "wait")}
    elsewhere = {1: place(4, "time.sleep(2)", "")}
    assert lasts(wait, here, here, {}, NOW - SECOND)
    assert lasts(wait, {}, {}, {}, NOW - SECOND), "it gives no answer"
    assert not lasts(wait, elsewhere, here, {}, NOW - SECOND), "posted ahead, awaited just now"
    assert not lasts(wait, {}, here, {}, NOW - SECOND)
    assert lasts(wait, here, here, {0: NOW - 2 * SECOND}, NOW - SECOND)
    assert not lasts(wait, here, here, {0: NOW}, NOW - SECOND), (
        "what it sent last may be on its way"
    )

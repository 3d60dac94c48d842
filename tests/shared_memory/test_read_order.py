"""What a published word announces is seen after the fence, not before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.shared_memory.conftest import ERROR, NAMES, ROWS_AT, Weak, new_recorder
from workbench.launchers.processes.relay import TraceReader, apply
from workbench.recording import events
from workbench.recording.events import CONTEXT, LANES_AT, ROW, SEND, STATUS_AT
from workbench.recording.recorder import Recorder
from workbench.recording.ring import Ring
from workbench.recording.trace_memory import trace_segment
from workbench.shared_memory import control_block as block
from workbench.shared_memory.control_block import Control
from workbench.shared_memory.segments import Segment
from workbench.store.growing_file import Growing, Pages
from workbench.store.rank_reader import RankReader, under_way
from workbench.store.table import NameTable
from workbench.store.trace_sources import Source, origin_of
from workbench.transports import peer_page
from workbench.transports.doorbell import MESSAGES, Bells
from workbench.transports.peer_page import PeerPage, write_alarm
from workbench.transports.shared_memory import SharedOutbox


def test_a_bell_rings_for_those_that_the_fence_shows(weak: Weak) -> None:
    bells = Bells.create()
    weak.later = [lambda: bells.segment.words.__setitem__(MESSAGES, 1)]
    bells.messages.ring_now()
    assert bells.semaphore.acquire(False)


def test_an_alarm_is_read_after_its_length(weak: Weak) -> None:
    page, text = PeerPage.create(2), write_alarm(ERROR)
    page.words[peer_page.W_ALARM] = len(text)
    place = slice(peer_page.TEXT_AT, peer_page.TEXT_AT + len(text))
    weak.later = [lambda: page.segment.memory.__setitem__(place, text)]
    assert str(page.alarm()) == "it broke"


def test_a_fingerprint_is_read_after_its_number_and_before_it_again(weak: Weak) -> None:
    page, at = PeerPage.create(2), peer_page.HISTORY_AT // 8
    page.begin(0, 70)
    set_word = page.words.__setitem__
    weak.later = [lambda: set_word(at + 1, 71)]
    assert page.signature(0) == 71
    weak.later = [lambda: None, lambda: set_word(at, -1)]
    assert page.signature(0) is None


@pytest.mark.parametrize(
    "read",
    [
        lambda: PeerPage.create(2).mailbox(0, 1, 2),
        lambda: PeerPage.create(2).leaving,
        lambda: SharedOutbox(64, "a test").waiting(),
    ],
)
def test_what_is_read_elsewhere_comes_after_a_fence(read: Callable[[], Any], weak: Weak) -> None:
    read()
    assert weak.seen


def _trace() -> Segment:
    """Return a trace with a row and a status."""
    recorder, segment = new_recorder()
    lane = recorder.lane("compute")
    lane.write(SEND, 10, 20, 3)
    lane.status(SEND, peer=3)
    return segment


def _hide(memory: memoryview, place: slice) -> Callable[[], None]:
    """Clear a place; return what shows it again."""
    content = bytes(memory[place])
    memory[place] = bytes(len(content))
    return lambda: memory.__setitem__(place, content)


def test_a_trace_is_read_from_its_header_down(weak: Weak) -> None:
    segment = _trace()
    memory, stored = segment.memory, list[tuple[Any, ...]]()
    show_lanes = _hide(memory, slice(8 * events.H_LANES, 8 * events.H_LANES + 8))
    show_number = _hide(memory, slice(ROWS_AT + 56, ROWS_AT + 64))
    show_row = _hide(memory, slice(ROWS_AT + 8, ROWS_AT + 16))
    weak.later = [show_lanes, show_number, show_row]
    RankReader(lambda *row: stored.append(row), lambda _: 1, 0, memory, {}).drain()
    ((_, _, rows, _),) = stored
    assert rows["end_ns"].tolist() == [20]


def test_names_are_read_after_their_count(weak: Weak) -> None:
    segment = _trace()
    weak.later = [_hide(segment.memory, NAMES)]
    names = NameTable(lambda _: 1, segment.memory)
    names.read()
    assert names.texts == ["", "compute"]


def test_a_row_that_is_overwritten_meanwhile_is_lost(weak: Weak) -> None:
    segment = _trace()
    segment.words[(ROWS_AT + 2 * 64) // 8 - 1] = 2  # two rows of a ring
    ring = Ring(segment.memory, ROWS_AT, 4, ROW)
    weak.later = [lambda: None, lambda: segment.words.__setitem__((ROWS_AT + 64) // 8 - 1, 5)]
    rows, lost = ring.read()
    assert (rows["seq"].tolist(), lost) == ([1], 1)


def test_a_status_that_changes_meanwhile_is_read_again(weak: Weak) -> None:
    segment = _trace()
    names = NameTable(lambda _: 1, segment.memory)
    words = segment.words

    def change() -> None:  # of the rest the reader had seen only a part
        words[(LANES_AT + STATUS_AT) // 8 + 1] += 1

    weak.later = [lambda: None, change]
    since = words[(LANES_AT + STATUS_AT) // 8 + 1]
    ((_, _, _, *fields),) = under_way(segment.memory, 0, 1, names)
    assert since + 1 in fields


def test_a_status_is_read_after_its_owner(weak: Weak) -> None:
    segment = _trace()
    names = NameTable(lambda _: 1, segment.memory)
    weak.later = [_hide(segment.memory, slice(LANES_AT + STATUS_AT, LANES_AT + STATUS_AT + 32))]
    assert len(list(under_way(segment.memory, 0, 1, names))) == 1


def test_a_file_s_records_are_read_after_their_numbers(weak: Weak, tmp_path: Path) -> None:
    path, record = tmp_path / "0.rows", bytearray(64)
    record[56] = 1
    path.write_bytes(record)
    record[8] = 20
    weak.later = [lambda: None, lambda: path.write_bytes(record)]
    (rows,) = Growing(path, CONTEXT, 4).read()
    assert bytes(rows)[8] == 20


def test_a_file_s_pages_are_read_one_after_the_other(weak: Weak, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_bytes(bytes(128))
    pages = Pages(path, 128)
    weak.later = [lambda: path.write_bytes(b"\1" * 128)]
    assert bytes(pages[:64]) == bytes(64) and bytes(pages[64:]) == b"\1" * 64


def test_the_origin_of_a_trace_is_read_from_its_header_down(weak: Weak, tmp_path: Path) -> None:
    recorder = Recorder.into_folder(tmp_path, 0)
    recorder.belongs("job", 2)
    (folder,) = tmp_path.iterdir()
    names = slice(events.NAMES_AT, events.NAMES_AT + events.NAMES_BYTES)
    weak.later = [_hide(recorder.memory, names)]
    assert origin_of(Source(0, 0, folder)).job == "job"


def test_an_agent_reads_the_header_before_what_it_counts(weak: Weak) -> None:
    segment = _trace()
    reader = TraceReader(segment.memory)
    reader.read()
    place = events.NAMES_AT + segment.words[events.H_NAMES]
    segment.words[events.H_NAMES] += 4
    # The first fence comes after the count of lanes.
    weak.later = [
        lambda: None,
        lambda: segment.memory.__setitem__(slice(place, place + 4), b"\3abc"),
    ]
    parts, data = reader.read()
    copy = trace_segment("its copy")
    apply(copy.memory, parts, memoryview(data))
    assert bytes(copy.memory[place : place + 4]) == b"\3abc"


@pytest.mark.parametrize("unit", ["chunk", "iteration"])
def test_a_grant_is_taken_for_what_it_grants(unit: str, weak: Weak) -> None:
    control = Control.create(1)
    control.hold()
    gate = control.own_gate(0)
    words = control.words
    words[block.GRANT] += 1

    def show() -> None:
        words[block.GRANT_UNIT], words[block.GRANT_UNTIL] = block.UNITS.index("iteration"), 4

    weak.later = [show]
    may = gate._may_pass("key", 5) if unit == "chunk" else gate._may_begin(5)
    assert not may


def test_a_pause_is_known_where_it_is_seen(weak: Weak) -> None:
    control = Control.create(1)
    gate = control.own_gate(0)
    control.hold()
    assert not gate.lets_chunk("one", "key", 0)
    weak.later = [lambda: control.words.__setitem__(block.HOLDS, 2)]
    assert not gate.lets_chunk("another", "key", 0)
    assert list(gate._standing) == ["another"]


def test_a_thread_that_has_passed_does_not_stand(weak: Weak) -> None:
    control = Control.create(1)
    control.hold()
    control.set_rank(0, block.AT_GATE, 1)
    assert control.standing() == [0]
    weak.later = [lambda: control.set_rank(0, block.AT_GATE, 0)]
    assert control.standing() == []

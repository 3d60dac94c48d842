"""Where stores may be seen in another order, fences keep it; without them nothing begins."""

from __future__ import annotations

import platform
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.shared_memory.conftest import CONTEXTS_AT, ERROR, NAMES, ROWS_AT, Weak, new_recorder
from workbench import native
from workbench.common.errors import WorkbenchError
from workbench.launchers.processes.relay import TraceReader, apply
from workbench.recording import events
from workbench.recording.events import LANES_AT, SEND, STATUS_AT
from workbench.recording.recorder import Recorder
from workbench.recording.trace_memory import trace_segment
from workbench.shared_memory import control_block as block
from workbench.shared_memory import ordering
from workbench.shared_memory.control_block import Control
from workbench.shared_memory.segments import Segment
from workbench.store.collector import Collector
from workbench.store.event_store import Store
from workbench.store.trace_follower import Follower
from workbench.transports import peer_page
from workbench.transports.doorbell import MESSAGES, ROOM, Bells
from workbench.transports.peer_page import PeerPage

STANDS_ON_IT: dict[str, Callable[[Path], object]] = {
    "segment": lambda _: Segment.create(4096, "a test"),
    "control": lambda _: Control.create(2),
    "page": lambda _: PeerPage.create(2),
    "trace": lambda folder: Recorder.into_folder(folder, 0),
    "collector": lambda _: Collector(Store(), {}),
    "follower": lambda folder: Follower(Store(), folder),
}


@pytest.mark.parametrize("what", STANDS_ON_IT)
def test_a_machine_without_the_order_or_a_fence_is_refused(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(ordering, "WEAK", True)
    monkeypatch.setattr(native, "extension", lambda: native.Extension(None, "it was not compiled"))
    words = r"needs the compiled mover .*\(aarch64\).*it was not compiled\. Install a wheel"
    with pytest.raises(WorkbenchError, match=words):
        STANDS_ON_IT[what](tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_machine_without_whole_words_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "WHOLE_WORDS", False)
    with pytest.raises(WorkbenchError, match="needs a 64-bit little-endian processor"):
        PeerPage.create(2)


@pytest.mark.parametrize("what", STANDS_ON_IT)
@pytest.mark.skipif(native.extension().module is None, reason=native.extension().reason)
def test_one_with_a_fence_is_not(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordering, "WEAK", True)
    STANDS_ON_IT[what](tmp_path)


@pytest.mark.skipif(native.extension().module is None, reason=native.extension().reason)
def test_the_fence_is_there() -> None:
    assert native.extension().module.fence() is None  # type: ignore[union-attr]


WRITER = """
import mmap, struct, sys
memory = memoryview(mmap.mmap(int(sys.argv[1]), 4096))
words, pack = memory.cast("q"), struct.Struct("q").pack_into
while True:
    for _ in range(1000):
        words[0] = 0
        pack(memory, 8, 0)
        words[0] = -1
        pack(memory, 8, -1)
    words[2] += 1
"""


def test_words_are_stored_and_loaded_whole() -> None:
    """Another process sets them to 0 and to -1, again and again: "2i" for "q" shows a half."""
    segment = Segment.create(4096, "a test")
    words, numbers = segment.words, np.frombuffer(segment.map, np.int64)
    command = [sys.executable, "-c", WRITER, str(segment.fd)]
    seen = set[int]()
    with subprocess.Popen(command, pass_fds=[segment.fd]) as writer:
        try:
            while words[2] < 100:
                seen |= {words[0], words[1], *numbers[:2].tolist()}
                seen.add(*struct.unpack_from("q", segment.memory, 8))
        finally:
            writer.kill()
    assert seen == {0, -1}


# -- a writer: at a fence, all that is behind the word is there and the word is not --

Published = tuple[Callable[[], Any], Callable[[], tuple[Any, Any]]]  # what is done, word and data


def _magic() -> Published:
    segment = trace_segment("a test")
    words = segment.words
    return lambda: Recorder.into_segment(segment, 3), lambda: (
        words[events.H_MAGIC],
        words[events.H_RANK],
    )


def _header(act: Callable[[Recorder], Any], word: int, behind: slice) -> Callable[[], Published]:
    def case() -> Published:
        recorder, segment = new_recorder()
        return lambda: act(recorder), lambda: (segment.words[word], bytes(segment.memory[behind]))

    return case


def _lane_again() -> Published:
    recorder, segment = new_recorder()
    recorder.give_back(recorder.take_lane("compute"))
    return lambda: recorder.take_lane("send"), lambda: (
        segment.words[LANES_AT // 8],
        segment.words[events.H_NAMES],
    )


def _lane_given_back() -> Published:
    recorder, segment = new_recorder()
    lane = recorder.take_lane("compute")
    lane.status(SEND, peer=3)

    def look() -> tuple[int, bytes]:
        return segment.words[LANES_AT // 8], bytes(segment.memory[LANES_AT + STATUS_AT :][:32])

    return lambda: recorder.give_back(lane), look


def _relayed(word: int, behind: Sequence[slice]) -> Callable[[], Published]:
    def case() -> Published:
        recorder, segment = new_recorder()
        lane = recorder.lane("compute")
        lane.write(SEND, 1, 2, 3)
        lane.status(SEND, peer=3)
        parts, data = TraceReader(segment.memory).read()
        copy = trace_segment("its copy")

        def look() -> tuple[int, list[bytes]]:
            return copy.words[word], [bytes(copy.memory[one]) for one in behind]

        return lambda: apply(copy.memory, parts, memoryview(data)), look

    return case


def _page(act: Callable[[PeerPage], Any], word: int, behind: slice) -> Callable[[], Published]:
    def case() -> Published:
        page = PeerPage.create(2)
        return lambda: act(page), lambda: (page.words[word], bytes(page.segment.memory[behind]))

    return case


def _control(act: Callable[[Control], Any], word: int, behind: int) -> Callable[[], Published]:
    def case() -> Published:
        control = Control.create(1)
        control.words[block.HELD] = control.words[block.GRANT] = 1
        control.words[block.GRANT_FROM] = 1
        return lambda: act(control), lambda: (control.words[word], control.words[behind])

    return case


def _hold() -> Published:
    control = Control.create(1)
    return control.hold, lambda: (control.words[block.HELD], control.words[block.HOLDS])


RANK = block.RUN_WORDS
TEXT = slice(peer_page.TEXT_AT, peer_page.TEXT_AT + peer_page.TEXT_BYTES)
OF_LANE = slice(LANES_AT, LANES_AT + 8)
STATUS = slice(LANES_AT + STATUS_AT + 8, LANES_AT + STATUS_AT + events.STATUS.size)
NOTHING = slice(0, 0)
PUBLISHERS: dict[str, Callable[[], Published]] = {
    "a trace": _magic,
    "names": _header(lambda recorder: recorder.name("new"), events.H_NAMES, NAMES),
    "lanes": _header(lambda recorder: recorder.lane("compute"), events.H_LANES, OF_LANE),
    "an end": _header(
        lambda recorder: (recorder.name("it broke"), recorder.end("it broke", {"text": "it"})),
        events.H_END,
        slice(8 * events.H_ERROR, 8 * events.H_ERROR + 8),
    ),
    "an attempt": _header(
        lambda recorder: recorder.belongs("job", 1),
        events.H_ATTEMPT,
        slice(8 * events.H_JOB, 8 * events.H_JOB + 8),
    ),
    "a lane that another had": _lane_again,
    "a lane without an owner": _lane_given_back,
    "a relayed row": _relayed(ROWS_AT // 8 + 7, [slice(ROWS_AT, ROWS_AT + 56)]),
    "a relayed context": _relayed(CONTEXTS_AT // 8 + 7, [slice(CONTEXTS_AT, CONTEXTS_AT + 56)]),
    "a relayed status": _relayed((LANES_AT + STATUS_AT) // 8, [OF_LANE, STATUS]),
    "a relayed header": _relayed(events.H_LANES, [OF_LANE, NAMES]),
    "an alarm": _page(lambda page: page.raise_alarm(ERROR), peer_page.W_ALARM, TEXT),
    "a mailbox": _page(
        lambda page: page.publish_mailbox(0, 1, 2, 7), peer_page.TABLE_AT // 8 + 1, NOTHING
    ),
    "leaving": _page(lambda page: setattr(page, "leaving", 1), peer_page.W_LEAVING, NOTHING),
    "a hold": _hold,
    "a grant": _control(lambda control: control.grant("step"), block.GRANT, block.GRANT_UNIT),
    "standing at a gate": _control(
        lambda control: control.own_gate(0).lets_chunk("me", "key", 0),
        RANK + block.SEEN,
        RANK + block.AT_GATE,
    ),
}


@pytest.mark.parametrize("what", PUBLISHERS)
def test_what_is_behind_a_word_is_there_before_it(what: str, weak: Weak) -> None:
    act, weak.look = PUBLISHERS[what]()
    weak.seen.clear()
    before = weak.look()[0]
    act()
    word, behind = weak.look()
    assert word != before
    assert any(a != word and b == behind for a, b in weak.seen), weak.seen


def _written(weak: Weak, at: int, size: int, number_at: int) -> Iterator[tuple[Any, ...]]:
    """Yield a lane, and the numbers and contents of one place that its fences have seen."""
    recorder, segment = new_recorder()
    lane = recorder.lane("compute")

    def look() -> tuple[int, bytes]:
        content = bytes(segment.memory[at : at + size])
        number = int.from_bytes(content[number_at:][:8], "little")
        return number, content[:number_at] + content[number_at + 8 :]

    weak.look = look
    for _ in range(2):
        weak.seen.clear()
        yield lane, look()
        weak.seen.append(look())


@pytest.mark.parametrize("what", ["row", "context"])
def test_a_record_is_begun_after_a_fence_and_numbered_after_another(
    what: str, weak: Weak, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rings of one record lap themselves at once.
    monkeypatch.setattr("workbench.recording.recorder.ROWS", 1)
    monkeypatch.setattr("workbench.recording.recorder.CONTEXTS", 1)
    at = ROWS_AT if what == "row" else ROWS_AT + 64
    for turn, (lane, (number, content)) in enumerate(_written(weak, at, 64, 56)):
        if what == "row":
            lane.write(SEND, 10 + turn, 20, 3)
        else:
            lane.context(op=turn)
        states, (last, final) = weak.seen, weak.look()
        assert last == number + 1 and final != content
        assert states[0] == (number, content), "begun before the one before it is there"
        assert (number, final) in states, "numbered before it is there"


@pytest.mark.parametrize("what", ["status", "idle"])
def test_a_status_is_odd_while_it_changes(what: str, weak: Weak) -> None:
    for turn, (lane, (number, content)) in enumerate(_written(weak, LANES_AT + STATUS_AT, 152, 0)):
        lane.idle() if what == "idle" else lane.status(SEND, peer=turn, values=(1.5,))
        last, final = weak.look()
        assert last == number + 2 and last % 2 == 0 and final != content
        assert (number + 1, content) in weak.seen, "changed before its number is odd"
        assert (number + 1, final) in weak.seen, "even again before it has changed"


def test_a_relayed_record_is_begun_after_the_one_before_it_is_there(weak: Weak) -> None:
    recorder, segment = new_recorder()
    lane = recorder.lane("compute")
    lane.write(SEND, 1, 2, 3)
    lane.write(SEND, 3, 4, 3)
    copy = trace_segment("its copy")
    second = slice(ROWS_AT + 64, ROWS_AT + 128)
    weak.look = lambda: (copy.words[ROWS_AT // 8 + 7], bytes(copy.memory[second]))
    parts, data = TraceReader(segment.memory).read()
    apply(copy.memory, parts, memoryview(data))
    assert (1, bytes(64)) in weak.seen


def test_a_relayed_status_is_odd_while_it_changes(weak: Weak) -> None:
    recorder, segment = new_recorder()
    recorder.lane("compute").status(SEND, peer=3)
    copy = trace_segment("its copy")
    weak.look = lambda: (copy.words[(LANES_AT + STATUS_AT) // 8], bytes(copy.memory[STATUS]))
    parts, data = TraceReader(segment.memory).read()
    apply(copy.memory, parts, memoryview(data))
    number, status = weak.look()
    assert (number + 1, bytes(len(status))) in weak.seen and (number + 1, status) in weak.seen


def test_a_fingerprint_is_of_no_collective_while_it_changes(weak: Weak) -> None:
    page = PeerPage.create(2)
    at = peer_page.HISTORY_AT // 8
    page.begin(0, 70)
    weak.look = lambda: (page.words[at], page.words[at + 1], page.words[peer_page.W_OP])
    weak.seen.clear()
    page.begin(peer_page.HISTORY, 71)
    assert (-1, 70, 0) in weak.seen and (-1, 71, 0) in weak.seen
    assert (peer_page.HISTORY, 71, 0) in weak.seen


def test_a_bell_is_announced_before_work_is_looked_for(weak: Weak) -> None:
    bells = Bells.create()
    words = bells.segment.words
    weak.look = lambda: (words[ROOM], words[MESSAGES])
    bells.listen(True, True)
    assert (1, 1) in weak.seen

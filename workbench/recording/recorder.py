"""A rank's trace as it is written: its names, its lanes, where in training it is."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.common.errors import WorkbenchError
from workbench.recording import meter as meters
from workbench.recording.compiled_lane import open_lane
from workbench.recording.events import (
    CONTEXTS,
    DATA_AT,
    H_AGENT,
    H_AGENT_BORN,
    H_ATTEMPT,
    H_BORN,
    H_BORN_HERE,
    H_COST_PS,
    H_END,
    H_ERROR,
    H_FULL,
    H_HOST,
    H_JOB,
    H_KNOCKS,
    H_LANES,
    H_LEFT,
    H_LOST,
    H_LOST_NOT,
    H_MAGIC,
    H_NAMES,
    H_OPERATIONS,
    H_PID,
    H_RANK,
    H_SEEN,
    H_SIZE,
    LANE_BYTES,
    LANES,
    LANES_AT,
    MAGIC,
    MORE_NAMES,
    NAMES_AT,
    NAMES_BYTES,
    NOWHERE,
    PAGE,
    RECORD_BYTES,
    ROWS,
    now,
)
from workbench.recording.group_members import members_name
from workbench.recording.lane import Lane, LaneMemory, Log, cost_of_a_record, nowhere
from workbench.recording.meter import Meter, Samples
from workbench.recording.trace_memory import map_block, new_folder
from workbench.shared_memory.ordering import need_order, publish
from workbench.shared_memory.segments import Segment, birth_ticks, reserve

LOSSES = "losses"  # the lane of losses where nothing else is recorded


class Recorder:
    """A rank's trace: its names, its lanes, and where in training it is (``where``)."""

    def __init__(
        self,
        memory: memoryview,
        rank: int,
        segment: Segment | None = None,
        folder: Path | None = None,
    ) -> None:
        """Record into ``segment``, a Run's ring, or into files of ``folder``; else nothing."""
        self.memory, self.rank, self._segment, self._folder = memory, rank, segment, folder
        self.active = segment is not None or folder is not None
        self.where, self.loss_lane = NOWHERE, "compute"
        self.generation = 0  # of the group that this rank is in
        self._words = memory[:PAGE].cast("q")
        self.numbers: dict[str, int] = {}
        self._lanes: dict[str, Lane] = {}
        self._written: dict[str, int] = {}  # rows of lanes that were given back, by name
        self._free: list[LaneMemory] = []
        self._nameless = self._crowded = False  # has it been said?
        # Threads meet here, but seldom. A group that is collected while a lane is made gives its
        # own back on that very thread.
        self._making, self._naming, self._losing = (
            threading.RLock(),
            threading.Lock(),
            threading.Lock(),
        )
        for word, value in (
            (H_RANK, rank),
            (H_PID, os.getpid()),
            (H_LANES, 0),
            (H_NAMES, 0),
            (H_SIZE, 0),
            (H_END, 0),
            (H_FULL, 0),
            (H_LOST, 0),
            (H_LOST_NOT, ~0),
            (H_ERROR, 0),
            (H_OPERATIONS, 0),
            (H_KNOCKS, 0),
            (H_SEEN, 0),
        ):
            self._words[word] = value
        publish(self._words, H_MAGIC, MAGIC)
        self.name("")
        if self.active:
            self._words[H_COST_PS] = int(cost_of_a_record() * 1000)

    @classmethod
    def off(cls, rank: int) -> Recorder:
        """Return a recorder that keeps nothing (``record=False``)."""
        return cls(memoryview(bytearray(DATA_AT)), rank)

    @classmethod
    def into_segment(cls, segment: Segment, rank: int) -> Recorder:
        return cls(segment.memory, rank, segment)

    @classmethod
    def losses_only(cls, segment: Segment, rank: int) -> Recorder:
        """Return a recorder that keeps losses alone, which a lost rank cannot report."""
        recorder = cls(segment.memory, rank, segment)
        recorder.active, recorder.loss_lane = False, LOSSES
        return recorder

    @classmethod
    def into_folder(cls, folder: Path, rank: int) -> Recorder:
        """Return a recorder that writes this rank's files in ``folder``; ``wb.load(folder)`` merges
        those of all ranks.
        """
        need_order("a trace that is read while it is written")
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        name = f"rank-{rank}-{os.getpid()}" + (f"-restart-{restart}" if restart != "0" else "")
        place = new_folder(folder, name)
        recorder = cls(map_block(place / "trace", 0, DATA_AT), rank, folder=place)
        words = recorder._words
        words[H_BORN], words[H_BORN_HERE] = time.time_ns(), now()
        words[H_HOST] = 1 + recorder.name(os.uname().nodename)
        if "TORCHELASTIC_MAX_RESTARTS" in os.environ:
            words[H_LEFT] = int(os.environ["TORCHELASTIC_MAX_RESTARTS"]) - int(restart)
            words[H_AGENT] = agent = os.getppid()
            words[H_AGENT_BORN] = birth_ticks(agent)
        return recorder

    def belongs(self, job: str, attempt: int) -> None:
        """Note which attempt of which job this process is part of; what it joins later changes
        nothing.
        """
        if not self._words[H_ATTEMPT]:
            self._words[H_JOB] = 1 + self.name(job)
            publish(self._words, H_ATTEMPT, 1 + attempt)  # its name is there already

    def only_operations(self) -> None:
        """Note that operations are recorded as a whole, nothing of their inside."""
        self._words[H_OPERATIONS] = 1

    def joined(self, size: int) -> None:
        """Note how many ranks the whole group has, so that readers of the trace can wait for the
        others.
        """
        self._words[H_SIZE] = size

    def lives(self, moment: int) -> None:
        """Note that the rank was alive at this moment: a wait that is cut off is not written."""
        self._words[H_SEEN] = moment

    def group(self, label: str, ranks: Sequence[int]) -> None:
        """Note the ranks of a group (recording/group_members.py)."""
        if text := members_name(label, ranks):
            self.name(text)

    def end(self, words: str, error: Mapping[str, Any] | None = None) -> None:
        """Write that the process ends by itself. ``words``: what it raised, "" if it did not;
        ``error``: the fields of that error.
        """
        if self._words[H_PID] == os.getpid():  # a fork's end is not ours
            if error is not None:
                self._words[H_ERROR] = 1 + self.name(json.dumps(error))
            publish(self._words, H_END, 1 + self.name(words))  # the error is there already

    def name(self, text: str) -> int:
        """Return the number that stands for ``text`` in this rank's records; equal texts have equal
        numbers.
        """
        number = self.numbers.get(text)
        if number is None:
            with self._naming:
                number = self.numbers.get(text)
                number = self._new_name(text) if number is None else number
            if number == self.numbers.get(MORE_NAMES) and not self._nameless:
                self._nameless = True
                self._warn(
                    f"the trace is full of names: {text[:80]!r} and those that follow are recorded "
                    f"as {MORE_NAMES!r}, and new lanes not at all"
                )
        return number

    def _new_name(self, text: str) -> int:
        data = text.encode()[:255]
        used = self._words[H_NAMES]
        if MORE_NAMES in self.numbers:  # a table that is full must not stop training
            return self.numbers[MORE_NAMES]
        if used + 1 + len(data) > NAMES_BYTES - (len(MORE_NAMES) + 1):
            text, data = MORE_NAMES, MORE_NAMES.encode()
        number = len(self.numbers)
        at = NAMES_AT + used
        self.memory[at : at + 1 + len(data)] = bytes([len(data)]) + data
        publish(self._words, H_NAMES, used + 1 + len(data))
        self.numbers[text] = number
        return number

    # -- lanes --

    def lane(self, name: str) -> Lane:
        """Return the lane of this name, made on first use, for good. One thread at a time may write
        to it.
        """
        result = self._lanes.get(name)
        return self.take_lane(name) if result is None else result

    def take_lane(self, name: str) -> Lane:
        """Return the lane of this name for a user that gives it back."""
        number = self.name(name)
        with self._making:
            lane = self._lanes.get(name) or self._new_lane(name, number)
            lane.users += 1
        return lane

    def give_back(self, lane: Lane) -> None:
        """Release a lane that is written no more: another lane may take its place."""
        with self._making:
            lane.users -= 1
            if lane.users or self._lanes.get(lane.name) is not lane:
                return
            del self._lanes[lane.name]
            if lane.index < 0:
                return
            self._written[lane.name] = lane.leave(self._lose)
            place = lane._place
            publish(memoryview(place.page)[:8].cast("q"), 0, 0)  # of no name
            self._free.append(place)

    def _new_lane(self, name: str, number: int) -> Lane:
        place = self._new_place(name, number) if self.active or name == LOSSES else None
        if place is not None:
            publish(memoryview(place.page)[:8].cast("q"), 0, number)
            lane = open_lane(self, name, number, place, self._written.get(name, 0))
        else:
            place = LaneMemory(-1, bytearray(PAGE), nowhere(), nowhere())
            lane = open_lane(self, name, number, place)
            lane.mute(self._lose if self.active else None)
        self._lanes[name] = lane
        return lane

    def _new_place(self, name: str, number: int) -> LaneMemory | None:
        """Return where a lane may write; None: there is no room for it."""
        if number == self.numbers.get(MORE_NAMES):
            return None
        if self._free:
            return self._free.pop()
        index = self._words[H_LANES]
        if index == LANES:
            if not self._crowded:
                self._crowded = True
                self._warn(
                    f"its trace has room for {LANES} lanes at a time, and {name!r} is one more: "
                    "its records are counted as dropped. Destroy groups that are not needed any "
                    "more (torch.distributed.destroy_process_group(group))"
                )
            return None
        logs = self._logs(name, index)
        if logs is None:
            return None
        page = self.memory[LANES_AT + index * PAGE :][:PAGE]
        knocks = None if self._segment is None else self.memory[H_KNOCKS * 8 :][:8]
        place = LaneMemory(index, page, *logs, Meter(page), knocks)
        page[:8].cast("q")[0] = number  # before it counts
        publish(self._words, H_LANES, index + 1)
        return place

    def _lose(self) -> None:
        """Count a row for which there is no lane."""
        with self._losing:
            count = self._words[H_LOST] + 1
            self._words[H_LOST], self._words[H_LOST_NOT] = count, ~count

    def _warn(self, words: str) -> None:
        print(f"[workbench] rank {self.rank}: {words}", file=sys.stderr, flush=True)

    def _logs(self, name: str, index: int) -> tuple[Log, Log] | None:
        """Return where a lane's rows and contexts go; None: there is no room for them on disk."""
        if self._folder is None:
            assert self._segment is not None
            at = DATA_AT + index * LANE_BYTES
            what = f"the records of rank {self.rank}'s lane {name!r}"
            reserve(self._segment.fd, at, LANE_BYTES, what)
            return Log(self.memory, at, ROWS, None), Log(
                self.memory, at + ROWS * RECORD_BYTES, CONTEXTS, None
            )
        try:
            rows = self._file_log(f"{index}.rows", ROWS)
            return rows, self._file_log(f"{index}.contexts", CONTEXTS)
        except WorkbenchError as error:
            self._full(error)
            return None

    def _file_log(self, name: str, records: int) -> Log:
        assert self._folder is not None
        path, block = self._folder / name, records * RECORD_BYTES

        def grow(number: int) -> memoryview:
            try:
                return map_block(path, number * block, block)
            except WorkbenchError as error:
                self._full(error)
                return memoryview(bytearray(block))  # what is written there is never read

        return Log(map_block(path, 0, block), 0, records, grow)

    def _full(self, error: WorkbenchError) -> None:
        """Note that the disk is full: training goes on, and readers of the trace see the note."""
        if not self._words[H_FULL]:
            self._words[H_FULL] = 1
            self._warn(f"{error}. Not all is recorded from here on")

    def span(self, kind: int, lane: str = "compute", name: str = "") -> Span:
        """Record what runs inside as one row of ``kind`` (collectives have their own, faster
        way).
        """
        return Span(self, kind, lane, name)

    def mark(
        self,
        kind: int,
        name: str,
        *,
        value: float = math.nan,
        lane: str = "compute",
        peer: int = -1,
        group: str = "",
        nbytes: int = -1,
    ) -> None:
        """Record an instant: a metric's number, a fault, something noticed."""
        log, moment = self.lane(lane), now()
        log.context(group=self.name(group), where=self.where)
        log.write(kind, moment, moment, peer, -1, -1, -1, nbytes, self.name(name), 0, value)


class Span:
    """A row of what runs inside, written at its end. No generator: spans are many, and nested."""

    def __init__(
        self, recorder: Recorder, kind: int, lane: str = "compute", name: str = ""
    ) -> None:
        self._recorder, self._lane, self._kind = recorder, recorder.lane(lane), kind
        self._name, self.start = recorder.name(name), 0

    def value(self) -> float:
        """Return the row's value, at the span's end."""
        return math.nan

    def __enter__(self) -> None:
        self._lane.context(where=self._recorder.where)
        self._lane.status(self._kind)
        self.start = now()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        value, name = self.value(), self._name
        self._lane.write(self._kind, self.start, now(), -1, -1, -1, -1, -1, name, 0, value)
        self._lane.idle()


def read_meters(trace: memoryview) -> tuple[Samples, float]:
    """Return what the meters of a rank's trace say, and a row's cost there at the start, in ns."""
    words = trace[:PAGE].cast("q")
    pages = (LANES_AT + index * PAGE for index in range(min(words[H_LANES], LANES)))
    samples = sum((meters.read(trace[at : at + PAGE]) for at in pages), Samples())
    return samples, words[H_COST_PS] / 1000

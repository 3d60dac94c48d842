"""The record: its meaning and its bytes.

One row is one span or one instant (``start_ns == end_ns``), written at its end by the code that did
the work. A lane is one thread's log (lane.py): rows of 64 bytes in memory that the driver maps too.
What the rows of one collective have in common (which collective, which group, which iteration) is
written once, as a context, and each row names its context. A rank's trace has its lanes and names
(recorder.py).

A trace has room for LANES lanes at a time. A group that is destroyed gives its lanes back, and
those of the next group write on where they ended: a context says whose rows they are. A row for
which there is no room is counted (``H_LOST``), as one that was overwritten is.

    rank's trace = header | names | a page a lane (identity, status, meter) | a lane's contexts, a
    lane's rows | ...

In a Run the rows are a ring that the collector drains; a ring that laps its reader loses rows,
which the reader counts. Outside a Run (``WORKBENCH_TRACE=folder``) the same bytes are files that
grow, so that what was written before a crash can be read after it.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass

import numpy as np

from workbench.recording.meter import METER_AT, METER_BYTES

KINDS = tuple(
    "forward backward weight_grad optimizer load collective send recv reduce copy wait "
    "push pull apply clock fault detect abort rebuild restore checkpoint metric memory".split()
)
CODE = {kind: code for code, kind in enumerate(KINDS)}
FORWARD, BACKWARD, WEIGHT_GRAD, OPTIMIZER, LOAD = range(5)
COLLECTIVE, SEND, RECV, REDUCE, COPY, WAIT = range(5, 11)
POISONED = "not finite"  # a metric: how many numbers of a part of a gradient, before it is summed
FAILED = "failed"  # the phase of a rank's part in a collective that raised an error, or was cut off
OVERRUN = "pad overrun"  # a metric: by how many ms padded computing was longer than its pad

# The columns of the event table, in its order (the contract).
COLUMNS = (
    "rank lane seq generation kind start_ns end_ns collective algorithm phase group op peer "
    "step chunk slot nbytes iteration microbatch stage version value name"
).split()

ROW = np.dtype(
    [
        ("start_ns", "i8"),
        ("end_ns", "i8"),
        ("context", "u4"),
        ("kind", "u2"),
        ("peer", "i2"),
        ("step", "i4"),
        ("chunk", "i4"),
        ("slot", "i4"),
        ("name", "u2"),
        ("phase", "u2"),
        ("nbytes", "i8"),
        ("value", "f8"),
        ("seq", "i8"),
    ]
)
# A row's ``context`` is the ``seq`` of its context. ``first``: the index, in the place where the
# lane's rows are, at which its own count begins; they may have had another lane's before them.
CONTEXT = np.dtype(
    [
        ("collective", "u2"),
        ("algorithm", "u2"),
        ("group", "u2"),
        ("lane", "u2"),
        ("generation", "i4"),
        ("microbatch", "i4"),
        ("op", "i8"),
        ("iteration", "i8"),
        ("stage", "i8"),
        ("version", "i8"),
        ("first", "i8"),
        ("seq", "i8"),
    ]
)
# seq (odd while it is written), since, kind + 1, peer, group, collective, algorithm, dtype, op,
# step, chunk | how many dimensions, how many values | the dimensions, the values
STATUS = struct.Struct("qqHhHHHHqiiHH4q8d")
RECORD_BYTES = 64
assert ROW.itemsize == CONTEXT.itemsize == RECORD_BYTES

PAGE = 4096
MAGIC = 0x3230_4B42_5257  # "WRBK02", little-endian
LANES = 32
NAMES_AT, NAMES_BYTES = PAGE, 64 * 1024
LANES_AT = NAMES_AT + NAMES_BYTES
DATA_AT = LANES_AT + LANES * PAGE
ROWS, CONTEXTS = 16_384, 4_096  # a lane's ring: 1 MB of rows, 256 KB of contexts
LANE_BYTES = (ROWS + CONTEXTS) * RECORD_BYTES
TRACE_BYTES = DATA_AT + LANES * LANE_BYTES
STATUS_AT = 64  # in a lane's page
assert STATUS_AT + STATUS.size <= METER_AT and METER_AT + METER_BYTES <= PAGE
# Words of the header. H_SIZE: ranks in the whole group; H_END: 1 + the number of the last words;
# H_FULL: there was no room for more records at some time; H_LOST: how many rows had no lane, and
# H_LOST_NOT the same number inverted: stray bytes are not a count. H_BORN: nanoseconds since 1970;
# H_HOST, H_JOB: 1 + the number of a name; H_ATTEMPT: 1 + which attempt of the job; H_LEFT: how
# often torchrun, process H_AGENT, may still restart it; H_AGENT_BORN: when that began, in ticks
# since the machine's start. H_ERROR: 1 + the number of the error that it raised, as JSON.
H_MAGIC, H_RANK, H_PID, H_LANES, H_NAMES, H_COST_PS, H_SIZE, H_END, H_FULL = range(9)
H_LOST, H_LOST_NOT, H_BORN, H_HOST, H_JOB, H_ATTEMPT, H_LEFT, H_AGENT, H_ERROR = range(9, 18)
H_OPERATIONS = 18  # 1: operations are recorded as a whole, nothing of their inside
H_AGENT_BORN = 19
H_BORN_HERE = 22  # the rank's own clock at H_BORN, in ns; 0: of before that was written
H_SEEN = 21  # when a wait of the rank has last looked around; 0: none has
H_KNOCKS = 20  # counts on where a ring fills (native/knock.h); 0: Python writes, and never does
MORE_NAMES = "(more names than a trace can hold)"  # stands for each of them

now = time.monotonic_ns


@dataclass(frozen=True, slots=True)
class Where:
    """A row's place in training; -1 is nowhere."""

    iteration: int = -1
    microbatch: int = -1
    stage: int = -1
    version: int = -1


NOWHERE = Where()


def lost_rows(words: memoryview) -> int:
    """Return how many rows had no lane, by the words of a trace's header."""
    return words[H_LOST] if words[H_LOST_NOT] == ~words[H_LOST] else 0

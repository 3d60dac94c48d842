"""The order in which other processes see what is written to shared memory.

What one process tells another without a lock, it tells by a word that is written last: a process
that sees the word sees all that was written before it. x86 keeps that order by itself; ARM, POWER
and RISC-V keep it where a fence stands, one before the word is written and one after it is read.
``publish`` writes such a word and ``observe`` reads one; ``fence`` stands where data and words are
more than that. On x86 none of them costs anything. Elsewhere the fence is C's, of the compiled
extension: Python has none, so that such a machine is refused without it (``need_order``).

    published word        behind it                    written by             read by
    H_MAGIC               a trace's header             Recorder               store/rank_reader
    H_LANES               a lane's page and rings      Recorder               rank_reader, relay
    H_NAMES               the texts of names           Recorder               store/table
    a lane's name         its rows are another's       Recorder               rank_reader
    H_END, H_ATTEMPT      the error, the job           Recorder               store/trace_*
    a row's seq           the row                      recording/lane, relay  recording/ring
    a context's seq       the context                  recording/lane, relay  recording/ring
    a status's seq, even  what a lane is in            recording/lane         rank_reader
    W_OP, a history's op  a collective's fingerprint   peer_page              peer_page
    W_ALARM               why a group has failed       peer_page              peer_page
    a mailbox's number    its semaphores               peer_page              peer_page
    W_LEAVING             all that it sent is taken    peer_page              peer_page
    HELD, GRANT, SEEN     a pause; a step; a waiter    control_block          control_block

Acquired and released, semaphores order by themselves: a mailbox's headers and slots, tensors that
are read in place, the clocks of network cards. So do sockets and pipes, and the kernel where a
process has ended. Words that stand for themselves need none: of the control block all the others,
which may take effect a message later. Where two processes each write a word and then read the
other's, as at a doorbell, a fence stands between the two; x86 needs one there too, and the
semaphore's locked instruction is it.

All of them are 8 bytes at a multiple of 8, which 64-bit processors store and load as a whole.
CPython copies them by ``memcpy`` of a constant size ("q" of a cast memoryview or of ``struct``,
numpy's int64), which compilers make one store; bytes that are copied one by one would be none.
"""

from __future__ import annotations

import platform
import sys

from workbench import native
from workbench.common.errors import WorkbenchError

ORDERED = ("x86_64", "amd64")  # machines whose stores are seen in their order
WEAK = platform.machine().lower() not in ORDERED
WHOLE_WORDS = sys.maxsize > 2**32 and sys.byteorder == "little"


def need_order(what: str) -> None:
    """Raise WorkbenchError where one process could see another's stores in another order."""
    machine = platform.machine() or "unknown"
    if not WHOLE_WORDS:
        raise WorkbenchError(
            f"{what} needs a 64-bit little-endian processor and Python, which this machine "
            f"({machine}) lacks: what ranks record and tell each other could be read half written"
        )
    if WEAK and native.extension().module is None:
        raise WorkbenchError(
            f"{what} needs the compiled mover on this machine ({machine}), which shows stores to "
            "other processes in any order: what ranks record and tell each other could be read "
            f"half written. It is not here: {native.extension().reason}. Install a wheel that has "
            "it (`make wheels` builds one for aarch64), or a C compiler and then the workbench "
            "again. Where it is, WORKBENCH_MOVER=python may still have Python move messages"
        )


def fence() -> None:
    """Have what was written and read before come before what is written and read from here on."""
    if WEAK:
        _fence()


def publish(words: memoryview, at: int, value: int) -> None:
    """Write the word that tells other processes that everything written before it is complete."""
    if WEAK:
        _fence()
    words[at] = value


def observe(words: memoryview, at: int) -> int:
    """Read such a word: what is read from here on is at least as new."""
    value = words[at]
    if WEAK:
        _fence()
    return value


def _nothing() -> None:
    """Stand in for the fence where nothing that needs it begins."""


_fence = getattr(native.extension().module, "fence", _nothing) if WEAK else _nothing

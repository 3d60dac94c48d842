"""Why a group has failed, as it travels: on a peer's board, and over the wire to other hosts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from torch._C._distributed_c10d import HashStore

from tests.live import until
from workbench.errors import WorkbenchError
from workbench.members import _told
from workbench.transports.bell import Bells
from workbench.transports.board import TEXT_BYTES, W_ALARM, Board, read_alarm, write_alarm
from workbench.transports.gloo import GlooChannels


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[GlooChannels, Board]]:
    """The channels of a rank to another host, and the board of a rank there."""
    store, boards, made = HashStore(), [Board.create(2), Board.create(2)], [None, None]

    def join(rank: int) -> None:
        bells = Bells.create()
        made[rank] = GlooChannels(  # type: ignore[call-overload]
            store, rank, 2, [1 - rank], 4096, boards[rank], bells, lambda *_: None
        )

    _both(join)
    yield made[0], boards[1]  # type: ignore[misc]
    _both(lambda rank: made[rank].close())  # type: ignore[attr-defined]


def _both(work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)


@pytest.mark.parametrize("letter", ["x", "é", "–", "\U0001f600", '"'])
def test_an_alarm_in_any_letters_reaches_a_rank_far_away(
    hosts: tuple[GlooChannels, Board], letter: str
) -> None:
    channels, board = hosts
    if board.words[W_ALARM]:  # of the letter before
        board.words[W_ALARM] = 0
        board._first.release()
    channels.raise_alarm("PeerLost", 3, "rank 3: " + letter * 2000)
    until(lambda: board.alarm() is not None, 10, "the alarm")
    alarm = board.alarm()
    assert alarm is not None and (alarm["kind"], alarm["rank"]) == ("PeerLost", 3)
    assert alarm["text"].startswith(("rank 3: " + letter)[: len(alarm["text"])])
    assert len(write_alarm(**alarm)) <= TEXT_BYTES - 8


def test_of_other_bytes_the_words_are_lost_and_the_alarm_is_not() -> None:
    whole = write_alarm("PeerLost", 3, "rank 3 ended")
    for data in (whole[:-9], b"", b"\xff" * 40, b"[1]", b'{"kind": []}', b"9" * 5000):
        assert read_alarm(data)["text"] == "a peer gave up"


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"pid": 1}', b'{"pid": "x", "fd": 1}', b"\x80"]
)
def test_a_meeting_place_of_another_job_is_named(text: bytes) -> None:
    with pytest.raises(WorkbenchError, match=r"rank 2 of this group has said .* MASTER_PORT"):
        _told(text, 2)


def test_of_two_alarms_at_once_one_is_told_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    board, seen = Board.create(3), []

    def written(kind: str, rank: int, text: str) -> bytes:
        if rank == 1:  # another rank comes in between
            board.raise_alarm("PeerLost", 2, "rank 2")
            seen.append(board.alarm())
        return write_alarm(kind, rank, text)

    monkeypatch.setattr("workbench.transports.board.write_alarm", written)
    board.raise_alarm("RunTimeout", 1, "no progress " * 40)
    told = board.alarm()
    assert told == {"kind": "RunTimeout", "rank": 1, "text": "no progress " * 40}
    assert seen == [None]  # nobody has read another one meanwhile, or half of each
    board.segment.close()

"""Why a group has failed, as it travels: on a peer's page, and over the wire to other hosts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from torch._C._distributed_c10d import HashStore

from tests.live import until
from workbench.common.errors import PeerLost, RunTimeout, WorkbenchError
from workbench.messaging.members import _checked_entry
from workbench.transports.doorbell import Bells
from workbench.transports.gloo import GlooChannels
from workbench.transports.peer_page import TEXT_BYTES, W_ALARM, PeerPage, read_alarm, write_alarm


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[GlooChannels, PeerPage]]:
    """The channels of a rank to another host, and the page of a rank there."""
    store, pages, channels = HashStore(), [PeerPage.create(2), PeerPage.create(2)], [None, None]

    def join(rank: int) -> None:
        bells = Bells.create()
        channels[rank] = GlooChannels(  # type: ignore[call-overload]
            store, rank, 2, [1 - rank], 4096, pages[rank], bells, lambda *_: None
        )

    _both(join)
    yield channels[0], pages[1]  # type: ignore[misc]
    _both(lambda rank: channels[rank].close())  # type: ignore[attr-defined]


def _both(work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)


@pytest.mark.parametrize("letter", ["x", "é", "–", "\U0001f600", '"'])
def test_an_alarm_in_any_letters_reaches_a_rank_far_away(
    hosts: tuple[GlooChannels, PeerPage], letter: str
) -> None:
    channels, page = hosts
    if page.words[W_ALARM]:  # of the letter before
        page.words[W_ALARM] = 0
        page._first.release()
    channels.raise_alarm(lost("rank 3: " + letter * 2000, letter * 2000))
    until(lambda: page.alarm() is not None, 10, "the alarm")
    alarm = page.alarm()
    assert type(alarm) is PeerLost
    assert (alarm.rank, alarm.peer, alarm.how, alarm.found_by) == (3, 1, "ended", 1)
    assert str(alarm).startswith(("rank 3: " + letter)[: len(str(alarm))])
    assert (letter * 2000).startswith(alarm.doing)
    assert len(write_alarm(alarm)) <= TEXT_BYTES - 8


def lost(text: str, doing: str) -> PeerLost:
    return PeerLost(text, 3, peer=1, how="ended", doing=doing, found_by=1)


def test_of_other_bytes_the_words_are_lost_and_the_alarm_is_not() -> None:
    whole = write_alarm(PeerLost("rank 3 ended", 3))
    for data in (whole[:-9], b"", b"\xff" * 40, b"[1]", b'{"kind": []}', b"9" * 5000):
        assert str(read_alarm(data)) == "a peer gave up"


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"pid": 1}', b'{"pid": "x", "fd": 1}', b"\x80"]
)
def test_a_meeting_place_of_another_job_is_named(text: bytes) -> None:
    with pytest.raises(WorkbenchError, match=r"rank 2 of this group has said .* MASTER_PORT"):
        _checked_entry(text, 2)


def test_of_two_alarms_at_once_one_is_told_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    page, alarms = PeerPage.create(3), []

    def written(error: WorkbenchError) -> bytes:
        if error.rank == 1:  # another rank comes in between
            page.raise_alarm(PeerLost("rank 2", 2))
            alarms.append(page.alarm())
        return write_alarm(error)

    monkeypatch.setattr("workbench.transports.peer_page.write_alarm", written)
    late = RunTimeout("no progress " * 40, 1)
    page.raise_alarm(late)
    alarm = page.alarm()
    assert alarm is not None and alarm.as_fields() == late.as_fields()
    assert alarms == [None]  # none has read another one meanwhile, or half of each
    page.segment.close()

"""What went wrong in a run: the cause comes before those that were told to end because of it."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict
from typing import Any

import polars as pl
import pytest

import workbench as wb
from workbench.common.errors import FIELDS, LastReport, WorkbenchError, from_fields
from workbench.runs.failure import as_facts, for_page, read_facts, summary, what_went_wrong
from workbench.shared_memory.control_block import ABORTED
from workbench.store.event_store import NOW_SCHEMA

NOTHING = pl.DataFrame(schema=NOW_SCHEMA)
LOST = wb.PeerLost(
    "rank 2 (process 9) ended while rank 1 was in all_reduce 4",
    2,
    peer=1,
    how="ended",
    doing="all_reduce 4",
    found_by=1,
).as_fields()
ABORT = WorkbenchError(ABORTED, how="aborted").as_fields()
RAISED = wb.CollectiveError("ranks disagree", 0, peer=1).as_fields()
STOPPED = wb.RunTimeout("rank 3 is stopped (SIGSTOP)", 3, peer=1, how="stopped").as_fields()
SILENT = wb.RunTimeout("no progress", 1, peer=0, how="silent").as_fields()


def cause(*reports: dict[str, Any]) -> wb.WorkbenchError | None:
    return what_went_wrong({}, dict(enumerate(reports)), {}, {}, NOTHING)


def reworded(fields: dict[str, Any]) -> dict[str, Any]:
    return fields | {"text": f"Es ist etwas schiefgegangen ({len(fields['text'])})."}


def test_a_rank_that_was_told_to_end_is_not_the_cause_where_another_has_lost_a_peer() -> None:
    for reports in ((ABORT, LOST), (LOST, ABORT), (ABORT, LOST, ABORT)):
        error = cause(*reports)
        assert isinstance(error, wb.PeerLost) and error.rank == 2, reports
        assert "rank 2 (process 9) ended" in str(error)


def test_what_a_rank_raised_itself_comes_before_both() -> None:
    error = cause(LOST, ABORT, RAISED)
    assert type(error).__name__ == "CollectiveError" and "disagree" in str(error)
    assert ABORTED in str(cause(ABORT, ABORT)) and cause() is None


def test_what_others_raised_names_each_of_them_once() -> None:
    too_much = (wb.MemoryLimit(f"rank {rank} holds 2 MB", rank).as_fields() for rank in (0, 1))
    assert str(cause(*too_much)).splitlines() == ["rank 0 holds 2 MB", "  rank 1 holds 2 MB"]


@pytest.mark.parametrize("way", [lambda fields: fields, reworded], ids=["as it is", "reworded"])
def test_a_rank_that_waits_for_a_stopped_one_knows_most_whatever_the_words(way: Any) -> None:
    for reports in ((SILENT, STOPPED), (STOPPED, SILENT), (ABORT, SILENT, STOPPED)):
        error = cause(*map(way, reports))
        assert isinstance(error, wb.RunTimeout) and (error.rank, error.how) == (3, "stopped")
    error = cause(*map(way, (ABORT, LOST)))
    assert isinstance(error, wb.PeerLost) and (error.rank, error.peer) == (2, 1)
    error = cause(*map(way, (LOST, ABORT, RAISED)))
    assert isinstance(error, wb.CollectiveError)


def test_an_error_keeps_its_fields_on_its_way() -> None:
    for fields in (LOST, ABORT, RAISED, STOPPED):
        error = from_fields(json.loads(json.dumps(fields)))
        assert error.as_fields() == fields and set(FIELDS) < set(fields)
    mine = wb.SpecError("a rank that is given less than it needs")
    again = from_fields(mine.as_fields())
    assert type(again) is wb.SpecError and again.problems[0].message == str(mine)


def test_a_lost_rank_is_told_with_what_every_rank_was_in() -> None:
    status = {name: -1 if dtype.is_integer() else "" for name, dtype in NOW_SCHEMA.items()}
    lanes = [
        {"rank": 0, "kind": "collective", "collective": "all_reduce", "op": 4},
        {"rank": 1, "kind": "wait", "op": 5, "step": 2, "chunk": 3},
        {"rank": 2, "kind": "forward"},
    ]
    now = pl.DataFrame([status | {"values": [], "shape": []} | one for one in lanes])
    error = what_went_wrong({2: -signal.SIGKILL}, {0: LOST}, {2: os.getpid()}, {2: 7}, now)
    assert isinstance(error, wb.PeerLost)
    assert (error.rank, error.how, error.code, error.doing) == (2, "killed", -9, "iteration 8")
    zero, one, two = error.under_way
    assert zero.error is not None and (zero.error["rank"], zero.error["peer"]) == (2, 1)
    assert (one.doing, one.words) == (
        "call 6, step 3, chunk 3",
        "waiting in call 6, step 3, chunk 3",
    )
    assert (two.doing, two.words, two.error) == ("forward", "in forward", None)
    facts = as_facts(error)
    assert read_facts(json.dumps(facts)) == facts
    assert summary(facts) == "Rank 2 was killed by SIGKILL in iteration 8"
    assert summary(as_facts(from_fields(LOST))) == "Rank 2 ended while rank 1 was in all_reduce 4"
    assert summary(as_facts(from_fields(RAISED))) == ""


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"under_way": 3}', "9" * 5000, '{"kind": null}'])
def test_facts_from_any_rank_are_read_or_none(text: str) -> None:
    assert read_facts(text) is None


def test_a_page_is_told_in_sentences_beside_the_data() -> None:
    facts = as_facts(from_fields(LOST | {"how": "killed", "code": -9, "peer": -1}))
    reports = [
        LastReport(0, "", error=LOST),
        LastReport(1, "waiting in call 6", "call 6"),
        LastReport(2, "in forward", "forward"),
    ]
    page = for_page(facts | {"under_way": [asdict(one) for one in reports]})
    assert page["summary"] == "Rank 2 was killed by SIGKILL in all_reduce 4"
    assert page["end"] == "killed by SIGKILL"
    sentences = [one["said"] for one in page["under_way"]]
    assert sentences[0] == "rank 2 ended while rank 1 was in all_reduce 4"
    assert sentences[1:] == ["waiting in call 6", "in forward"]
    assert for_page(as_facts(from_fields(LOST)))["end"] == "its process ended"
    assert for_page(as_facts(from_fields(RAISED)))["summary"] == ""

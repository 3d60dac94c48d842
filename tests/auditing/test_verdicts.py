"""The verdict on every program beside this file, and on every bug that it can have."""

from __future__ import annotations

import pytest

from tests.auditing.test_audit import PROGRAMS, audited

# program or program:bug; of a public report also program:FIXED, its repair
RIGHT = """accumulate batchnorm cp ddp ddp:noclip dtensor_tp embedding_sparse ep fsdp2 gan loop
pipelining pp report_12 sp tiny tp transformer uneven weighted_ce zero1 zero_torch
report_06:FIXED report_07:FIXED report_09:FIXED report_11:FIXED report_13:FIXED report_15:FIXED
report_16:FIXED report_17:FIXED report_34:FIXED report_36:FIXED"""
WRONG = """accumulate:dp_times accumulate:forget accumulate:last_only cp:no_sum cp:stale
ddp:clip_own ddp:module ddp:no_sync ddp:rank_lost ddp:scaled ep:doubled ep:router fsdp2:clip_own
fsdp2:divide loop:copy loop:late loop:only_some loop:seeds loop:sum pipelining:forget pp:forget
pp:half report_06 report_09 report_13 report_15 report_16 report_17 sp:bias sp:mean sp:norm
sp:scatter tp:f_bias tp:g_twice tp:no_f uneven:ignore uneven:means zero1:no_gather zero1:stale
zero1:sum"""
# What the program means cannot be told from its update: a detach, tied weights, equal samples.
QUESTION = """ddp:same_data pp:tied pp_same_seed report_07 report_11 report_12:count report_33
report_33:FIXED report_34 stop_gradient tp_detach transformer:no_rng"""
# Of all epochs an audit sees one step: that a sampler is not told of the next one is in none.
UNSEEN = "report_36"
IN_THE_SECOND = "second:buffer second:half second:once second:zero"
CASES = {
    **dict.fromkeys((*RIGHT.split(), UNSEEN), "RIGHT"),
    **dict.fromkeys(WRONG.split(), "WRONG"),
    **dict.fromkeys(QUESTION.split(), "QUESTION"),
    "fsdp1": "ABSTAINS",  # torch wants an accelerator for it
}


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_each_program_is_judged_as_what_it_is(name: str) -> None:
    program, fixed, _ = name.partition(":FIXED")
    ranks = 1 if name.startswith("report_12") else 2
    result = audited(program, ranks, env={"FIXED": "1"} if fixed else {})
    assert result.verdict == CASES[name], str(result)


@pytest.mark.full
@pytest.mark.parametrize("name", IN_THE_SECOND.split())
def test_a_bug_of_the_second_update_is_seen_there(name: str) -> None:
    assert audited(name).verdict == "RIGHT"
    result = audited(name, update=2)
    assert result.verdict == "WRONG", str(result)


@pytest.mark.full
def test_replicas_that_are_not_summed_are_seen_where_there_are_some() -> None:
    result = audited("fsdp2:no_replica", ranks=4)
    assert result.verdict == "WRONG", str(result)


def test_every_program_has_its_verdict() -> None:
    known = {name.partition(":")[0] for name in (*CASES, *IN_THE_SECOND.split())}
    assert known == {path.stem for path in PROGRAMS.glob("*.py")} - {"start"}

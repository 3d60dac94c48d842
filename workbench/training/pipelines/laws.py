"""The laws of a run with a pipeline, checked on its event table alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from workbench.common.units import counted
from workbench.laws import MOST, Violation
from workbench.theory.provenance import plain_texts
from workbench.training.pipelines.rows import actions
from workbench.training.pipelines.schedule import Action, Schedule, needs

__all__ = [
    "check_pipeline",
    "every_microbatch_once",
    "in_order",
    "messages_paired",
    "peaks_kept",
    "versions_right",
]

Row = Mapping[str, Any]
Key = tuple[int, int]  # replica, iteration


def check_pipeline(
    events: pl.DataFrame, schedule: Schedule, *, iterations: int, microbatches: int | None = None
) -> list[Violation]:
    """Check every law of this file for a run that ended well.

    ``microbatches``: per iteration; without a flush the schedule has those of the whole run.
    """
    events = plain_texts(events)
    each = microbatches or schedule.microbatches
    return [
        *every_microbatch_once(events, schedule, iterations, each),
        *in_order(events, schedule, each),
        *peaks_kept(events, schedule, each),
        *versions_right(events, schedule, each),
        *messages_paired(events, schedule, iterations, each),
    ]


def every_microbatch_once(
    events: pl.DataFrame, schedule: Schedule, iterations: int, each: int
) -> list[Violation]:
    """Check that in every iteration each rank did exactly the actions of its row, once each."""
    done = _done(events, schedule, each)
    result = []
    expected = range(iterations) if schedule.flush else [-1]
    replicas = sorted({replica for replica, _ in done}) or [0]
    for key in ((replica, iteration) for replica in replicas for iteration in expected):
        rows = done.get(key, [])
        for place, row in enumerate(schedule.rows):
            counts = dict.fromkeys(map(str, row), 0)
            for one in rows:
                if one["place"] == place:
                    counts[one["action"]] = counts.get(one["action"], 0) + 1
            planned = set(map(str, row))
            for action, count in counts.items():
                if count != (action in planned):
                    result.append(
                        _broken(
                            "every microbatch once",
                            schedule,
                            key,
                            place,
                            f"{action} was done {count} times, expected {int(action in planned)}",
                        )
                    )
    return _most(result)


def in_order(events: pl.DataFrame, schedule: Schedule, each: int) -> list[Violation]:
    """Check that actions begin in the row's order, and after everything they need has ended.

    So a forward precedes its backward, and stages follow one another.
    """
    result = []
    for key, rows in _done(events, schedule, each).items():
        at = {Action.parse(row["action"]): row for row in rows}
        for place, planned in enumerate(schedule.rows):
            begun = [row["action"] for row in rows if row["place"] == place]
            expected = [str(one) for one in planned if one in at]
            if begun != expected and sorted(begun) == sorted(expected):
                n = next(n for n, (a, b) in enumerate(zip(begun, expected, strict=True)) if a != b)
                words = f"action {n} was {begun[n]}, the schedule has {expected[n]}"
                result.append(_broken("in order", schedule, key, place, words))
        for one, row in at.items():
            for before in needs(one, schedule.stages, at):
                if before in at and at[before]["end_ns"] > row["start_ns"]:
                    early = (at[before]["end_ns"] - row["start_ns"]) / 1e6
                    words = f"{one} began {early:.3f} ms before {before}, which it needs, ended"
                    result.append(_broken("in order", schedule, key, row["place"], words))
    return _most(result)


def peaks_kept(events: pl.DataFrame, schedule: Schedule, each: int) -> list[Violation]:
    """Check each stage's most microbatches in flight against the schedule's.

    Counted from the actions, and from the rank's own "in flight" rows where it has some.
    """
    result = []
    for key, rows in _done(events, schedule, each).items():
        held, most = [0] * schedule.stages, [0] * schedule.stages
        for row in rows:
            held[row["stage"]] += (row["what"] == "F") - (row["what"] in "BW")
            most[row["stage"]] = max(most[row["stage"]], held[row["stage"]])
        for stage, (peak, planned) in enumerate(zip(most, schedule.peaks, strict=True)):
            if peak != planned:
                had = counted(peak, "microbatch")
                words = f"stage {stage} had {had} in flight, the schedule {planned}"
                result.append(_broken("peaks kept", schedule, key, schedule.rank_of[stage], words))
    table = (
        events.filter(pl.col("kind") == "metric", pl.col("name") == "in flight")
        .group_by("rank", "stage")
        .agg(pl.col("value").max())
        .sort("rank", "stage")
    )
    for row in table.iter_rows(named=True):
        planned = schedule.peaks[row["stage"]]
        if row["value"] != planned:
            result.append(
                Violation(
                    "peaks kept",
                    f"rank {row['rank']} held activations of {row['value']:g} microbatches of "
                    f"stage {row['stage']}, the schedule's most is {planned}",
                    rank=row["rank"],
                )
            )
    return _most(result)


def versions_right(events: pl.DataFrame, schedule: Schedule, each: int) -> list[Violation]:
    """Check that a forward runs after the updates before it in its row, and its backward on its
    version.

    A backward (and W) uses the version of its forward, stashed where the stage has newer ones. With
    a flush that version is the iteration. Without, a stage updates by itself after ``each``
    backwards.
    """
    result = []
    for key, rows in _done(events, schedule, each).items():
        at = {Action.parse(row["action"]): row for row in rows}
        for place, planned in enumerate(schedule.rows):
            backwards: dict[int, int] = defaultdict(int)
            for one in planned:
                if one not in at:
                    continue
                version = at[one]["version"]
                if one.kind == "F":
                    expected = key[1] if schedule.flush else backwards[one.stage] // each
                    why = f"its stage had been updated {expected} times"
                else:
                    forward = at.get(Action(one.stage, "F", one.microbatch))
                    expected = forward["version"] if forward else version
                    why = f"its forward ran on version {expected}"
                backwards[one.stage] += one.kind in "BW"
                if version != expected:
                    words = f"{one} ran on version {version}, but {why}"
                    result.append(_broken("versions right", schedule, key, place, words))
    return _most(result)


def messages_paired(
    events: pl.DataFrame, schedule: Schedule, iterations: int, each: int
) -> list[Violation]:
    """Check that each sent message was received, by the right rank and with the same content.

    Across every cut between two ranks each microbatch's activation and gradient must arrive.
    """
    p = pl.col
    rows = events.filter(
        p("kind").is_in(["send", "recv"]), p("collective") == "p2p", p("microbatch") >= 0
    ).with_columns(
        source=pl.when(p("kind") == "send").then("rank").otherwise("peer"),
        target=pl.when(p("kind") == "send").then("peer").otherwise("rank"),
    )
    message = ["group", "source", "target", "op"]
    facts = ["kind", "iteration", "microbatch", "stage", "name"]
    both = rows.group_by([*message, "kind"]).agg(p(*facts[1:]).first(), p("nbytes").sum())
    sent, received = (
        {tuple(row[one] for one in message): row for row in part.iter_rows(named=True)}
        for part in (both.filter(p("kind") == kind) for kind in ("send", "recv"))
    )
    result = []
    for key in sorted(sent.keys() | received.keys(), key=str):
        a, b = sent.get(key), received.get(key)
        words = f"message {key[3]} from rank {key[1]} to rank {key[2]}"
        if a is None or b is None:
            wrong = "was sent and not received" if a else "was received and not sent"
            result.append(Violation("messages paired", f"{words} {wrong}", rank=key[1]))
            continue
        hop = 1 if a["name"] == "activation" else -1
        lines = [
            (one["iteration"] + 1, one["microbatch"], one["name"], one["nbytes"]) for one in (a, b)
        ]
        if lines[0] != lines[1] or b["stage"] != a["stage"] + hop:
            result.append(
                Violation(
                    "messages paired",
                    f"{words} left as {lines[0]} of stage {a['stage']} and arrived as {lines[1]} "
                    f"at stage {b['stage']}: iteration, microbatch, name, bytes",
                    rank=key[2],
                )
            )
    if not rows.height:
        return result
    return _most([*result, *_cuts(received, schedule, iterations, each)])


def _cuts(
    received: Mapping[Any, Row], schedule: Schedule, iterations: int, each: int
) -> Iterator[Violation]:
    """Yield violations for messages that a cut lacks, and for messages within a rank."""
    came: dict[tuple[int, int, str, int], set[int]] = defaultdict(set)
    for (_, _, target, _), row in received.items():
        replica = target // schedule.ranks
        came[replica, row["stage"], row["name"], row["iteration"]].add(row["microbatch"])
    for replica in sorted({key[0] for key in came}):
        for cut in range(schedule.stages - 1):
            apart = schedule.rank_of[cut] != schedule.rank_of[cut + 1]
            for stage, name in ((cut + 1, "activation"), (cut, "gradient")):
                for iteration in range(iterations):
                    expected = set(range(each)) if apart else set[int]()
                    there = came.get((replica, stage, name, iteration), set())
                    if there != expected:
                        yield Violation(
                            "messages paired",
                            f"replica {replica}, iteration {iteration + 1}: stage {stage} received "
                            f"the {name} of microbatches {sorted(there)}, expected "
                            f"{sorted(expected)}",
                            rank=replica * schedule.ranks + schedule.rank_of[stage],
                        )


def _done(events: pl.DataFrame, schedule: Schedule, each: int) -> dict[Key, list[Row]]:
    """Return the rows of actions by replica and iteration, in order of their start."""
    result: dict[Key, list[Row]] = defaultdict(list)
    for row in actions(events, schedule, each).iter_rows(named=True):
        result[row["replica"], row["iteration"]].append(row)
    return result


def _broken(law: str, schedule: Schedule, key: Key, place: int, words: str) -> Violation:
    replica, iteration = key
    rank = replica * schedule.ranks + place
    when = f"iteration {iteration + 1}, " if iteration >= 0 else ""
    return Violation(law, f"{when}rank {rank}: {words}", rank=rank)


def _most(violations: list[Violation]) -> list[Violation]:
    """Keep the first violations, and count the rest."""
    if len(violations) <= MOST:
        return violations
    more = Violation(violations[0].law, f"and {len(violations) - MOST} more")
    return [*violations[:MOST], more]

"""Exercises of chapter 18: the bytes of Gorila and of Ape-X."""

from __future__ import annotations

import json
from collections.abc import Mapping

import polars as pl

from workbench.common.errors import WorkbenchError
from workbench.exercises.answers import experiment, numbers
from workbench.exercises.exercise import Exercise
from workbench.exercises.recorded import finished
from workbench.exercises.verdict import Finding, at_least, at_most, equal
from workbench.experiment.spec import Experiment
from workbench.runs.run import Run

GORILA = Experiment(
    strategy="gorila",
    task="catch",
    ranks=6,
    iterations=40,
    batch_size=32,
    optimizer="adam",
    threads=1,
    pad_environment="2 ms",
    options={"learners": 2},
)
TENTH = 2 * 103_756 / 10  # bytes: of what Gorila's servers receive and send per update


def ranks_of(role: str, run: Run) -> list[int]:
    """Return the ranks of a role, such as "learners"."""
    return list(json.loads(run.store.metadata["roles"])[role])


def bytes_sent(run: Run, kind: str, *to: int) -> int:
    """Return the bytes of all messages of a kind, to these ranks or to all."""
    rows = run.events.filter(kind="send", name=kind)
    return int((rows.filter(pl.col("peer").is_in([*to])) if to else rows)["nbytes"].sum())


def four_learners(answer: Mapping[str, float]) -> list[Finding]:
    """Judge gradients and parameters by the record of four learners."""
    run = finished(GORILA.replace(ranks=8, options={"learners": 4}))
    why = "U N w: 4 learners, 40 updates each, 25,939 parameters of 4 bytes."
    return [
        equal("bytes of gradients", bytes_sent(run, "gradients"), answer["gradients"], why),
        equal(
            "bytes of parameters to learners",
            bytes_sent(run, "parameters", *ranks_of("learners", run)),
            answer["parameters"],
            "A learner pulls once before each update: as many bytes as it pushes.",
        ),
    ]


def four_servers(answer: Mapping[str, float]) -> list[Finding]:
    """Judge the sum and the busiest server by the record of four servers."""
    run = finished(GORILA.replace(ranks=9, options={"learners": 2, "servers": 4}))
    busiest = max(bytes_sent(run, "gradients", one) for one in ranks_of("servers", run))
    return [
        equal(
            "bytes of gradients, to all servers",
            bytes_sent(run, "gradients"),
            answer["all"],
            "Each learner still pushes one number for each parameter: the sum stays the same.",
        ),
        equal(
            "bytes of gradients, to the busiest server",
            busiest,
            answer["busiest"],
            "25,939 parameters on four servers: three hold 6,485 of them and one 6,484.",
        ),
    ]


def a_tenth(answer: Experiment) -> list[Finding]:
    """Judge an experiment by what its messages cost per update, and by its actors' pulls."""
    run = finished(answer)
    if "roles" not in run.store.metadata:
        raise WorkbenchError(
            f"strategy {answer.strategy!r} has no actors: take 'ape_x', or 'gorila'"
        )
    updates = run.events.filter(kind="metric", name="loss").height
    nbytes = bytes_sent(run, "parameters") + bytes_sent(run, "gradients")
    actors = ranks_of("actors", run)
    pulled = run.events.filter(kind="metric", name="policy lag")["rank"].unique().to_list()
    return [
        at_least("updates", 300, updates),
        at_least("actors", 3, len(actors)),
        equal(
            "parameters of the network",
            25_939,
            json.loads(run.store.metadata["roles"])["elements"],
            "A smaller network would be another task.",
        ),
        at_most(
            "bytes of parameters and gradients per update",
            round(TENTH),
            round(nbytes / updates),
            "Gorila's learner pulls and pushes for each update. In Ape-X only actors pull: "
            "F / (U k) N w.",
        ),
        equal(
            "actors that pulled while the learner learned",
            len(actors),
            len({*actors} & {*pulled}),
            "An actor that never pulls plays by the initial network.",
        ),
    ]


EXERCISES = (
    Exercise(
        name="18.1",
        title="Twice the learners",
        difficulty=1,
        minutes=5,
        takes=numbers("gradients", "parameters"),
        judge=four_learners,
        task="""
            Gorila has four learners in place of two, and each makes 40 updates: replace
            `ranks=8`, `iterations=40` and `options={"learners": 4}`. How many bytes of gradients
            are sent, and how many bytes of parameters *to learners*?
            """,
        hint="""
            Each update of each learner pulls all parameters once and pushes one gradient. The
            network has 25,939 parameters of 4 bytes.
            """,
        solution="""
            $U N w = 160 \\cdot 25{,}939 \\cdot 4 = 16{,}600{,}960$ bytes each. The actors' pulls
            come on top.
            """,
    ),
    Exercise(
        name="18.2",
        title="Four servers",
        difficulty=2,
        minutes=10,
        takes=numbers("all", "busiest"),
        judge=four_servers,
        task="""
            Two learners again, 40 updates each, but four servers in place of one: `ranks=9` and
            `options={"learners": 2, "servers": 4}`. How many bytes of gradients do all servers
            receive together, and how many does the busiest one receive?
            """,
        hint="""
            `placement="even"` divides the 25,939 parameters as evenly as it can. That is not
            divisible by four.
            """,
        solution="""
            Together $80 \\cdot 103{,}756 = 8{,}300{,}480$ bytes, as with one server. The busiest
            holds 6,485 parameters: $80 \\cdot 6{,}485 \\cdot 4 = 2{,}075{,}200$ bytes. More servers
            divide the traffic; they do not reduce it.
            """,
    ),
    Exercise(
        name="18.3",
        title="A tenth of the bytes",
        difficulty=2,
        minutes=15,
        takes=experiment(),
        judge=a_tenth,
        task="""
            Submit an experiment on `catch` with at least 3 actors and 300 updates that spends at
            most a tenth of Gorila's $2Nw$ on parameters and gradients per update: 20,751 bytes.
            Every actor must pull at least once.
            """,
        hint="""
            Which strategy sends no gradients? What is left is $\\frac{F}{U k} N w$, and $k$ is
            `pull_every`. Too large a $k$, and no actor pulls before the run is over.
            """,
        solution="""
            ```python
            ape_x.replace(iterations=300, options={"pull_every": 160})
            ```

            At five frames per update that is $5 / 160 \\cdot 103{,}756 = 3{,}200$ bytes. What
            you pay is policy lag: an actor's parameters are older.
            """,
    ),
)

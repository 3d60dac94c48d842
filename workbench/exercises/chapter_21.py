"""Exercises of chapter 21: fully sharded data parallel training."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.exercises.answers import numbers
from workbench.exercises.exercise import Exercise
from workbench.exercises.recorded import finished
from workbench.exercises.verdict import Finding, timed
from workbench.experiment.spec import Experiment
from workbench.runs.run import Run

LAYERS = Experiment(
    strategy="fsdp",
    task="mlp_layers",
    task_options={"layers": 24, "width": 128},
    ranks=4,
    iterations=3,
    batch_size=16,
    optimizer="sgd",
    memory_limit="1 GB",  # so that memory is counted
)


def model_bytes(record: Run) -> int:
    """Return the bytes of the parameters."""
    return sum(one.nbytes for one in record.result.parameters.values())


def more_ranks(answer: Mapping[str, float]) -> list[Finding]:
    """Judge what a rank sends with two ranks and with eight by formula and record."""
    findings = []
    for name, ranks in (("two", 2), ("eight", 8)):
        record = finished(LAYERS.replace(ranks=ranks))
        sent = max(record.result.bytes_sent.values()) / record.experiment.iterations
        of_model = round(sent / model_bytes(record), 3)
        formula = 3 * (ranks - 1) / ranks
        why = "Two gathers and a reduce-scatter, each (p - 1)/p of the model: below 3 for any p."
        what = f"times the model's bytes, {name} ranks"
        findings.append(timed(what, formula, of_model, answer[name], 0.02, why * (ranks == 8)))
    return findings


def without_moments(answer: Mapping[str, float]) -> list[Finding]:
    """Judge what stays on a rank with plain SGD; show the most that was held."""
    findings = []
    for name, strategy, stays in (("whole", "data_parallel", 2.0), ("sharded", "fsdp", 0.5)):
        record = finished(LAYERS.replace(strategy=strategy))
        most = round(max(record.result.memory.values()) / model_bytes(record), 2)
        why = (
            "SGD keeps no moments: parameters and gradients stay, or a quarter of each. (The most "
            "that was held is more: activations, and with FSDP a layer that is gathered.)"
        )
        what = f"times the model's bytes that stay, {name}"
        findings.append(timed(what, stays, most, answer[name], 0.05, why * (name == "sharded")))
    return findings


EXERCISES = (
    Exercise(
        name="21.1",
        title="Two ranks, eight ranks",
        difficulty=1,
        minutes=5,
        takes=numbers("two", "eight"),
        judge=more_ranks,
        task="""
            FSDP that gathers each layer twice. How many times the model's bytes does a rank send in
            an iteration, with two ranks and with eight?
            """,
        hint="Three passes, and each sends $(p-1)/p$ of the model.",
        solution="""
            $3 \\cdot 1/2 = 1.5$ and $3 \\cdot 7/8 = 2.625$. It grows with the ranks, towards 3, and
            what stays on a rank falls as $1/p$.
            """,
    ),
    Exercise(
        name="21.2",
        title="What is left to save?",
        difficulty=2,
        minutes=5,
        takes=numbers("whole", "sharded"),
        judge=without_moments,
        task="""
            Plain SGD in place of Adam (`optimizer="sgd"`), four ranks. How many times the model's
            bytes stay on a rank, where every rank has it whole, and with FSDP?
            """,
        hint="With Adam it was four times the model. Which two of the four are Adam's?",
        solution="""
            2 and 0.5: parameters and gradients, or a quarter of both. FSDP saves the same share,
            but of half as much.
            """,
    ),
)

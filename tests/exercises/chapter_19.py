"""Answers to the exercises of chapter 19."""

import workbench as wb

ALONE = wb.Experiment(
    strategy="sequential",
    task="catch",
    ranks=1,
    iterations=300,
    batch_size=32,
    optimizer="adam",
    threads=1,
    options={"capacity": 800, "learn_from": 100, "block": 16},
)


def mean_age(update, capacity, learn_from, block):
    held = min(capacity, learn_from + update * block)
    since = min(held, update * block)
    return (since * since / block / 2 + (held - since) * update) / held


def always_full(update, capacity, learn_from, block):
    return capacity / (2 * block)


def half_of_the_updates(update, capacity, learn_from, block):
    return min(update / 2, capacity / (2 * block))


def words(update, capacity, learn_from, block):
    return "old"


ANSWERS = {
    "19.1": ({"mean": 150, "oldest": 300}, (75, 300), (150, 600)),
    "19.2": (
        ALONE,
        ALONE.replace(options={**ALONE.options, "block": 4}),
        ALONE.replace(options={**ALONE.options, "capacity": 400}),
        ALONE.replace(iterations=60),
    ),
    "19.3": (mean_age, always_full, half_of_the_updates, words),
}

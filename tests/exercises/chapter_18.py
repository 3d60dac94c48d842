"""Answers to the exercises of chapter 18."""

import workbench as wb

APE_X = wb.Experiment(
    strategy="ape_x",
    task="catch",
    ranks=5,
    iterations=300,
    batch_size=32,
    optimizer="adam",
    threads=1,
    pad_environment="2 ms",
    options={"pull_every": 160},
)

ANSWERS = {
    "18.1": (
        {"gradients": 16_600_960, "parameters": 16_600_960},
        (8_300_480, 8_300_480),
        (16_600_960, 33_201_920),
    ),
    "18.2": ({"all": 8_300_480, "busiest": 2_075_200}, (8_300_480, 8_300_480), (2_075_120,) * 2),
    "18.3": (
        APE_X,
        APE_X.replace(options={"pull_every": 4}),
        APE_X.replace(options={"pull_every": 100_000}),
        APE_X.replace(strategy="gorila", options={}),
        APE_X.replace(strategy="sequential", ranks=1, iterations=20, options={}),
    ),
}

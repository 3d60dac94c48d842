"""Answers to the exercises of chapter 16."""

ANSWERS = {
    "16.1": ((42.4, 0.236), (5, 0.236), (42.4, 0.028)),
    "16.2": (
        ["parameters", "optimizer state", "sampler position"],
        ["parameters"],
        ["parameters", "optimizer state"],
    ),
}

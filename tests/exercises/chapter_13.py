"""Answers to the exercises of chapter 13."""

ANSWERS = {"13.1": (7, 2, 64), "13.2": (8.5, 10, 1)}

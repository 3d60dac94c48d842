"""Answers to the exercises of chapter 21."""

ANSWERS = {"21.1": ((1.5, 2.625), (1, 1.75), (1.5, 3)), "21.2": ((2, 0.5), (4, 1), (2, 1))}

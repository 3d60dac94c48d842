"""Answers to the exercises of chapter 4."""


def bounded(worker, iteration, clocks):
    return iteration - clocks.slowest <= 1


def in_step(worker, iteration, clocks):
    return iteration <= clocks.slowest


def loose(worker, iteration, clocks):
    return iteration - clocks.slowest <= 8


ANSWERS = {
    "04.1": (5, 6, 2),
    "04.2": (0.6, 0.2, 0.4),
    "04.3": (1 / 7, 1 / 3, 1 / 9),
    "04.4": (bounded, in_step, loose),
}

"""Answers to the exercises of chapter 17."""

import time


def changing(run, requests):
    for change, ask in enumerate(requests):
        here = run.iteration
        while run.iteration < here + 5:
            time.sleep(0.05)
        ask()
        while len(run.recovery()) <= change:
            time.sleep(0.05)


def autumn(run):
    gone = [lambda: run.remove_rank(3), lambda: run.remove_rank(2)]
    changing(run, [*gone, run.add_rank, run.add_rank, lambda: run.remove_rank(3)])


def early(run):
    changing(run, [lambda: run.remove_rank(3)])


def back_and_forth(run):
    gone = lambda: run.remove_rank(3)  # noqa: E731
    changing(run, [gone, run.add_rank, gone, run.add_rank, gone])


ANSWERS = {"17.1": (0.9986, 0.986, 0.5), "17.2": (autumn, early, back_and_forth)}

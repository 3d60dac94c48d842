"""Exercises of chapter 24: tags with a long tail."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from workbench.common.errors import WorkbenchError
from workbench.exercises.answers import function, numbers
from workbench.exercises.exercise import Exercise
from workbench.exercises.grade import call
from workbench.exercises.verdict import Finding, equal, near
from workbench.tasks._tag_features import gap

# Ratings of ten tags by three raters, from 1 (anyone can tell) to 5 (an expert can): made up.
RATINGS: Mapping[str, Sequence[int]] = {
    "vehicle": (1, 1, 1),
    "animal": (1, 1, 2),
    "food": (1, 2, 1),
    "car": (1, 2, 2),
    "dog": (1, 2, 2),
    "guitar": (2, 2, 3),
    "drift of a car": (3, 3, 4),
    "terrier": (4, 3, 4),
    "flamenco guitar": (4, 5, 4),
    "turboprop": (5, 4, 5),
}
FINE = 2.5  # mean rating from which a tag counts as fine
CASES = ((4, 6, 2), (7, 5, 3), (20, 30, 20))  # videos, tags, how many count of each video


def global_precision(score: Callable[..., Any]) -> list[Finding]:
    """Judge a score by ours, on made predictions."""
    findings = []
    for videos, tags, most in CASES:
        chance = torch.Generator().manual_seed(videos)
        truth = (torch.rand(videos, tags, generator=chance) < 0.3).float()
        scores = truth + 1.5 * torch.rand(videos, tags, generator=chance)
        received = call(score, scores.tolist(), truth.tolist(), most)
        if not isinstance(received, int | float):
            raise WorkbenchError(f"it must return a number, and returned {received!r}")
        words = f"GAP@{most} of {videos} videos with {tags} tags"
        why = "One list for all videos; each hit adds the precision up to it, by all true tags."
        expected = round(gap(scores, truth, most), 4)
        findings.append(near(words, expected, round(float(received), 4), 1e-3, why))
    return findings


def fine_ones(answer: Mapping[str, float]) -> list[Finding]:
    """Judge by the mean of three recorded raters, which are made up."""
    means = {name: sum(each) / len(each) for name, each in RATINGS.items()}
    fine = sum(mean >= FINE for mean in means.values())
    apart = max(max(each) - min(each) for each in RATINGS.values())
    return [
        equal("fine tags of the ten", fine, answer["fine"], f"Means: {means}."),
        equal("largest difference", apart, answer["apart"], "Raters agree to within one step."),
    ]


EXERCISES = (
    Exercise(
        name="24.1",
        title="Write GAP",
        difficulty=3,
        minutes=15,
        takes=function("score(scores, truth, most)"),
        judge=global_precision,
        task="""
            `scores` and `truth` are lists with a row per video and a number per tag. Return the
            global average precision: take the `most` largest scores of each video, sort those of
            *all* videos together, and go down that list. At each hit add the share of hits so far.
            Divide by the number of true tags of all videos.
            """,
        hint="Make one list of pairs (score, is it true) and sort it once.",
        solution="""
            ```python
            def score(scores, truth, most):
                pairs = []
                for row, right in zip(scores, truth):
                    pairs += sorted(zip(row, right), reverse=True)[:most]
                hits = total = 0
                for place, (_, right) in enumerate(sorted(pairs, reverse=True), 1):
                    hits += right
                    total += right * hits / place
                return total / sum(map(sum, truth))
            ```
            """,
    ),
    Exercise(
        name="24.2",
        title="Coarse or fine?",
        difficulty=1,
        minutes=5,
        takes=numbers("fine", "apart"),
        judge=fine_ones,
        task="""
            Each tag of the original was rated by three people from 1 (anyone can tell) to 5 (an
            expert can). Rate these ten yourself: vehicle, animal, food, car, dog, guitar, drift of
            a car, terrier, flamenco guitar, turboprop. Then read the three recorded raters (they
            are made up): `from workbench.exercises.chapter_24 import RATINGS`. How many of the ten
            are fine by a mean rating of 2.5 or more, and how far apart do two raters of one tag
            lie at most?
            """,
        hint="Take the mean of the three ratings of each tag.",
        solution="Four are fine: the last four. No two raters of a tag differ by more than one.",
    ),
)

"""Answers to the exercises of chapter 2."""

ANSWERS = {
    "02.1": (16, 8, 14),
    "02.2": (6, 4, 8),
    "02.3": ((2 / 3, 1 / 3), (1 / 2, 1 / 2), (1 / 3, 2 / 3)),
    "02.4": ("nearly gone", "longer", "as long"),
}

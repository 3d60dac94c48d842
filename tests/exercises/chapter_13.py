"""Answers to the exercises of chapter 13."""

ANSWERS = {
    "13.1": (10, 7, 9, 11),
    "13.2": (8.5, 10, 1),
    "13.3": (
        {"ring": 1.75, "hierarchical": 1.5},
        {"ring": 1.75, "hierarchical": 0.75},
        {"ring": 3.5, "hierarchical": 1.5},
    ),
}

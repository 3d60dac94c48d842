"""Answers to the exercises of chapters 9 and 9b."""

ANSWERS = {
    "09.1": (0.06, 0.015, 0.4),
    "09.2": ("waiting", "communication", "communication"),
    "09.3": (4, 1, 24),
    "09.4": (
        {"bytes": 399_360, "ms": 166.0},
        {"bytes": 8 * 399_360, "ms": 166.0},
        {"bytes": 399_360, "ms": 124.7},
    ),
    "09.5": (224, 208, 66_560),
    "09.6": (
        {"samples": 16, "all_reduces": 29},
        {"samples": 8, "all_reduces": 29},
        {"samples": 16, "all_reduces": 5},
    ),
}

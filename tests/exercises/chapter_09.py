"""Answers to the exercises of chapter 9."""

ANSWERS = {
    "09.1": (0.06, 0.015, 0.4),
    "09.2": ("waiting", "communication", "communication"),
    "09.3": (4, 1, 24),
}

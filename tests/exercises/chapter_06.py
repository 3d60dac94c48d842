"""Answers to the exercises of chapter 6."""

ANSWERS = {
    "06.1": (0.226, 0.111, 0.273),
    "06.2": (18.75, 10, 30),
    "06.3": ("smaller", "larger", "same"),
    "06.4": ((0.0588, 8), (0.111, 8), (0.0588, 4)),
}

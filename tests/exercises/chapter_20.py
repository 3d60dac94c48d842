"""Answers to the exercises of chapter 20."""

ANSWERS = {
    "20.1": ("ends with an error", "waits for ever", "ends as usual"),
    "20.2": ((60, 0), (0, 60), (20, 20)),
}

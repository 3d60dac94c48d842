"""Exercises of the chapters, each with a grader that judges an answer by what real ranks record.

The exercises of a chapter are a file of this folder, ``chapter_01.py``, with

    EXERCISES = (Exercise("01.1", "Twice the ranks", takes=..., judge=..., task=..., ...), ...)

Files are found by listing the folder, and ``exercises/`` in a folder of the user's own
(common/extensions.py); nothing is registered. A judge takes an answer, runs what it needs, and
returns findings (verdict.py): what was expected, what was received, and why. An exercise takes one
kind of answer (answers.py): a number, several by name, one of some options, a function, an
experiment. What else the reader gives is refused before anything runs.
"""

"""Input from outside, damaged or made up: answered in words, never a crash and never a hang.

    python -m tools.fuzz [FAMILY ...] --seconds 60 --seed 0

goes on from where the tests stop: each case is made from its seed alone, so that one that fails can
be made again.
"""

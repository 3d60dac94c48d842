"""Runs: the live handle of a run; how it is supervised, steered and brought to its result.

It shows itself through ``displays.py``, which the package's face fills.
"""

"""Branches of a model's graph on two ranks at the same time."""

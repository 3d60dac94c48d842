"""Pipelines: a schedule as data, the rank that follows it, what theory says, and what must hold."""

"""Pipelines: a schedule as data, the rank that follows it, its theory, and its laws."""

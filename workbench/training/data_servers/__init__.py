"""Servers of training data, and the workers that request it ahead of time."""

"""User code: a task, strategy or algorithm by name, by path, or as text that travels to ranks.

Nothing is ever pickled: code travels as source.
"""

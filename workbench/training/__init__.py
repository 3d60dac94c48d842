"""Training: the parts that strategies are made of, a folder for each family.

A new family is a new folder; the strategy itself is a file in ``strategies/``.
"""

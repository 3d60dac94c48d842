"""Analysis: pure functions from the rows of a run to columns, curves and numbers.

Add a curve here; ``views/`` draws what is computed here.
"""

"""Theory: the α-β-γ cost model, planned events, and which ranks' data is in each chunk.

A prediction stands here with its source, so that pictures can lay it over what was measured.
"""

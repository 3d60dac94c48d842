"""Training with fewer or larger messages: averaging now and then, sending a part, fusing tensors.

The strategies are strategies/local_sgd.py, diloco.py, top_k.py and fusion.py; here is what they
share, what they send as formulas, and experiments to begin with.
"""

"""ZeRO 1 and 2: whole parameters on every rank, and a part of the optimizer's state."""

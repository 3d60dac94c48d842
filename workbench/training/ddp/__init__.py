"""DDP's buckets: which parameters are in which, and what of their way computing hides."""

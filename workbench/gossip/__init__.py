"""Training without a centre: who averages with whom, how fast replicas agree, and what is told."""

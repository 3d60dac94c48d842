"""Elephas: partitions trained against a parameter server, in rounds of epochs or batches."""

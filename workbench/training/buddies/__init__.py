"""Copies of what each rank trains, on the next rank, for strategies that divide the model."""

"""A model cut between its layers: traced, measured, cut into stages."""

"""Where examples come from: servers of training data, and who asks them ahead of time."""

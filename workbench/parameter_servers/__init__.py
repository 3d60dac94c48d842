"""A parameter server's servers and workers, what theory says, and what must hold."""

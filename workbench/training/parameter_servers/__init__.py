"""Parameter servers: server and worker ranks, their theory, and the laws of their event tables."""

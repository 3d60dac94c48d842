"""Transports of bytes: ``shared_memory`` between ranks of one host, ``gloo`` between hosts."""

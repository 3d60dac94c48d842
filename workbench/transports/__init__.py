"""Transports of bytes: ``shared_memory`` between ranks of one host, ``mpi`` or ``gloo`` between
hosts.
"""

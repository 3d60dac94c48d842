"""Collective algorithms, one small file each: ``<operation>_<algorithm>.py`` defines ``<operation>``.

An all-reduce takes a communicator and a flat array or tensor ``x_N``, the same N and dtype on every
rank, combines it over the ranks in place and returns it.
"""

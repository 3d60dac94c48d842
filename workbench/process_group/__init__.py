"""The torch.distributed backend "workbench": a process group over our own collectives.

It never imports polars or a user interface.
"""

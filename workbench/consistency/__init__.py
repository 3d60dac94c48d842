"""Consistency of a parameter server: when a worker may go on, one file a policy.

``<name>.py`` defines the class ``<NAME>``, made with the options that its ``__init__`` names.
``workbench.training.parameter_servers.clocks`` says what a policy sees and what it is asked.
"""

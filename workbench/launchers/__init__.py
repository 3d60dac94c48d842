"""Launchers, which start ranks: one file each, by name or path in
``Experiment(launcher="local")``.

May import what stands below it, up to rank/. To add one: a file here, or in launchers/ of a folder
of your own (WORKBENCH_EXTENSIONS), that defines a class ``Launcher`` as processes/launcher.py
describes it. Processes/ holds what launchers are made of: the warm pool of this machine, and agents
for ranks that share no memory with the driver.
"""

"""The interface: the form of an experiment, the laboratory, the web app and the demo.

It stands on everything else; nothing imports it.
"""

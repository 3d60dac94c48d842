"""The components of launchers.

They are the warm pool and its fork server, handles of ranks, and agents and relays for ranks that
share no memory with the driver.
"""

"""Adapters for agent frameworks: the framework keeps its history, the model gets a list that fits.

Each module imports its framework, so import only the one that you use. Without a server connection,
an adapter works in this process with the archive of this user.
"""

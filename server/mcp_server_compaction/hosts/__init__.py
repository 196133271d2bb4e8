"""Sessions of agents' hosts, imported into the archive."""

"""Archives that are named by an address, not by a folder."""

_ADDRESS_MARK = "://"


def is_address(location: str) -> bool:
    """Whether `location` is an address, and no folder."""
    return _ADDRESS_MARK in location


def shown_address(location: str) -> str:
    """An address without what may be secret in it: name, password, settings."""
    scheme, _, rest = location.partition(_ADDRESS_MARK)
    place, _, settings = rest.partition("?")
    # Where a password was not escaped, nobody can tell what is which.
    shown = "…" if "@" in settings else place.rpartition("@")[2]
    return f"{scheme}{_ADDRESS_MARK}{shown}"

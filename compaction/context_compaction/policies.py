"""Policies: named sets of layers and constants. A new strategy is a new layer and a line here."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from context_compaction.errors import SettingsError
from context_compaction.settings import Settings


@dataclass(frozen=True, slots=True)
class Policy:
    """A strategy, as data.

    Attributes:
        name: What `policy=` names.
        description: One sentence, with its source.
        layers: Names of the layers that it runs, in order.
        settings: Its constants.
    """

    name: str
    description: str
    layers: tuple[str, ...]
    settings: Settings = field(default_factory=Settings)


CLEARING_LAYERS = ("persist", "dedupe", "snip", "microcompact")
REPLACING_LAYERS = ("summarize", "restore")

POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy(
            "default",
            "Ours: clear what is worthless, then what is old, then summarise at a safe cut.",
            ("persist", "dedupe", "microcompact", "summarize", "restore"),
        ),
        Policy(
            "gentle",
            "Only clears tool results; history is never replaced.",
            ("persist", "dedupe", "microcompact"),
        ),
    )
}


def policy_named(name: str) -> Policy:
    """The policy of that name.

    Raises:
        SettingsError: There is none; the message lists those there are.
    """
    if name not in POLICIES:
        known = ", ".join(POLICIES)
        raise SettingsError(f"There is no policy {name!r}. Choose one of: {known}.")
    return POLICIES[name]

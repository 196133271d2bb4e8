"""The policies as a document: what each does, where it is from, and every constant of it."""

from typing import Any

from context_compaction.policies import POLICIES, Policy
from context_compaction.settings import SETTING_NAMES, STRATEGY_NAMES, Settings


def policies_document() -> dict[str, Any]:
    """All policies, each with the constants in which it differs from the default."""
    return {
        "about": "Names for `policy` of compact_messages. The constants that "
        "options://compact_messages lists can be changed by name in `options`; those that a policy "
        "does not list have the default.",
        "policies": [_entry(policy) for policy in POLICIES.values()],
    }


def own_constants(policy: Policy) -> dict[str, Any]:
    """The constants of a policy that are not the default's."""
    usual = Settings()
    values = {name: getattr(policy.settings, name) for name in (*SETTING_NAMES, *STRATEGY_NAMES)}
    return {name: value for name, value in values.items() if value != getattr(usual, name)}


def _entry(policy: Policy) -> dict[str, Any]:
    return {
        "name": policy.name,
        "description": policy.description,
        "source": policy.source,
        "layers": list(policy.layers),
        "constants": own_constants(policy),
        "differences_from_source": list(policy.differences),
    }

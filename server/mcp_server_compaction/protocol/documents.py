"""Options and policies as JSON documents, for the resources and the command line."""

from dataclasses import asdict
from typing import Any

from context_compaction import POLICIES, SETTING_NAMES, Policy, Settings

from mcp_server_compaction.options import entries
from mcp_server_compaction.protocol.arguments import short_schema
from mcp_server_compaction.protocol.schemas import CompactOptions


def options_document() -> dict[str, Any]:
    """Return all fields of the `options` of `compact_messages`."""
    defaults = Settings()
    descriptions = {name: text for name, _, text in entries(Settings, "Attributes")}
    return {
        "about": "Fields of `options` of the tool compact_messages. All are optional. An unknown "
        "name is an error.",
        "options": short_schema(CompactOptions)["properties"],
        "constants_of_the_policy": {
            name: {"default": getattr(defaults, name), "description": descriptions[name]}
            for name in SETTING_NAMES
        },
    }


def policies_document() -> dict[str, Any]:
    """Return all policies, each with the constants that differ from the defaults."""
    return {
        "about": "Values for `policy` of compact_messages. Change a constant by its name in "
        "`options`; options://compact_messages describes all constants. A policy lists only the "
        "constants that differ from the defaults.",
        "policies": [
            {
                "name": policy.name,
                "description": policy.description,
                "source": policy.source,
                "layers": list(policy.layers),
                "constants": own_constants(policy),
                "differences_from_source": list(policy.differences),
            }
            for policy in POLICIES.values()
        ],
    }


def own_constants(policy: Policy) -> dict[str, Any]:
    """Return the constants of a policy that differ from the defaults."""
    defaults = asdict(Settings())
    values = asdict(policy.settings).items()
    return {name: value for name, value in values if value != defaults[name]}

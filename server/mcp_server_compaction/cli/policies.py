"""`policies`: what can be named with --policy."""

import json
import textwrap

from context_compaction.policies import POLICIES

from mcp_server_compaction.cli.terminal import say
from mcp_server_compaction.protocol.policy_list import own_constants, policies_document

_WIDTH = 100


def run_policies(*, as_json: bool) -> None:
    """Print every policy with its source, its layers and its constants."""
    if as_json:
        say(json.dumps(policies_document(), indent=1))
        return
    for policy in POLICIES.values():
        say(f"{policy.name} ({policy.source})")
        lines = [policy.description, "Layers: " + " > ".join(policy.layers)]
        constants = own_constants(policy)
        if constants:
            lines.append("Constants: " + ", ".join(f"{k}={v}" for k, v in constants.items()))
        lines += [f"Differs: {difference}" for difference in policy.differences]
        for line in lines:
            say(textwrap.indent(textwrap.fill(line, _WIDTH - 2), "  "))
        say()

"""A conversation of several turns with rules, names and tool calls, and a good summary of it."""

from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

GOAL = "Find out why the invoices of March are rounded wrongly and mend it"
RULE = "Never touch the table legacy_totals, the auditors read it"
LATEST = "Now write the release note, in two sentences"

SUMMARY = f"""## Goal and latest request
The user wants: "{GOAL}". Latest: "{LATEST}".
## Constraints and preferences
- "{RULE}"
## Decisions and why
Rounding moves to billing/round.py, because float arithmetic lost cents.
## Facts, errors and exact values
- billing/round.py holds round_half_even; ticket INV-4711; limit 0.005.
- The assistant reads billing/module_0.py to billing/module_5.py one after the other.
## Done, do not repeat
(none)
## In flight
(none)
## Open tasks
- Release note.
## Next step
Write the release note.
"""


def story(turns: int = 6, result_lines: int = 60) -> list[Json]:
    """Return the conversation in Anthropic's format."""
    messages: list[Json] = [
        {"role": "user", "content": f"{GOAL}. See ticket INV-4711.\n{RULE}."},
    ]
    for number in range(turns):
        if number:
            messages.append({"role": "user", "content": f"Go on with module {number}, please."})
        messages += [
            {
                "role": "assistant",
                "content": [
                    {
                        "type": "thinking",
                        "thinking": f"secret thought {number}",
                        "signature": f"sig{number}",
                    },
                    {"type": "text", "text": f"I read billing/module_{number}.py for INV-4711."},
                    {
                        "type": "tool_use",
                        "id": f"toolu_{number}",
                        "name": "Read",
                        "input": {"file_path": f"billing/module_{number}.py"},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": f"toolu_{number}",
                        "content": code(number, result_lines),
                    }
                ],
            },
            {
                "role": "assistant",
                "content": f"Module {number} calls round_half_even of billing/round.py with 0.005.",
            },
        ]
    messages.append({"role": "user", "content": f"{LATEST}."})
    return messages


def code(number: int, lines: int) -> str:
    """Return the text of a module in which every line differs."""
    return "\n".join(
        f"total_{number}_{line} = round_half_even(price_{line} * {line + number}, 0.005)  # <b>&"
        for line in range(lines)
    )

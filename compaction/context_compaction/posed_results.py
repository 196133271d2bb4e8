"""Results of tools that a host hands over as messages of the user, told apart by their form.

Hosts without tool calls (SWE-agent, ReAct loops, mini-swe-agent, OpenHands and Cline in their text
modes) run what the assistant wrote and say the outcome in the user's name. Nobody typed that, so
nothing in it is a request or a rule. It shows in two ways: a label of the host's at its beginning,
or a shell's prompt at its end, and that again and again, after the assistant has spoken. Pure.
"""

import re

from context_compaction import markers
from context_compaction.messages import Message, Messages, Text, ToolResult

# Fewer may be a person who pastes what he saw.
_LEAST_TIMES = 3
_LABEL = re.compile(
    r"\s*(?:"
    r"\W{0,4}(?:(?:tool|command|function|code|terminal|shell|execution)[ _](?:results?|output|"
    r"response)|observation|stdout|exit ?code|return ?code)\b[^\n]{0,80}?[:>\n]"
    r"|<(?:output|observation|result|tool_result|function_results?)\b[^\n>]{0,80}>"
    r"|\[\w+(?: for '[^\n']{0,200}')?\] Result:"
    r")",
    re.IGNORECASE,
)
_PROMPT = re.compile(r"(?:\A|\n)[^\s]{0,60}[$#%>][ \t]*\Z")


def with_results_told_apart(messages: Messages) -> Messages:
    """`messages`, those that only pose as the user's as results without a call."""
    spoken = [
        at
        for at in range(1, len(messages))
        if messages[at - 1].role == "assistant" and markers.is_request(messages[at])
    ]
    posed = {at for at in spoken if _is_of_a_tool(messages[at])}
    if len(posed) < max(_LEAST_TIMES, len(spoken) // 2 + 1):
        return messages
    return tuple(_as_result(m) if at in posed else m for at, m in enumerate(messages))


def _is_of_a_tool(message: Message) -> bool:
    texts = [block.text for block in message.blocks if isinstance(block, Text)]
    if len(texts) < len(message.blocks):
        return False
    return bool(_LABEL.match(texts[0]) or _PROMPT.search(texts[-1][-80:].rstrip()))


def _as_result(message: Message) -> Message:
    texts = tuple(block for block in message.blocks if isinstance(block, Text))
    return Message("user", (ToolResult("", texts),), index=message.index)

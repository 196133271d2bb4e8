"""Plans that the agent proposes, and documents that are handed over in the user's name."""

import re

from context_compaction.messages.model import Messages, text_of
from context_compaction.messages.speakers import user_text

# A plan of the agent's in its host's frame.
PLAN = re.compile(r"^<(\w{0,40}plan)>\n((?:(?!</?\w{0,40}plan>).*\n)*+)</\1>[ \t]*$", re.MULTILINE)
# A document that a line hands over: "Please implement this plan:\n# Fix the login".
_HANDED_OVER = re.compile(r"\s*(\S[^\n]{0,80}:)\s*\n\s*(# .+)", re.DOTALL)


def newer_documents(messages: Messages) -> dict[int, int]:
    """The user's messages that hand over a document, each with that of the newest of its kind.

    Of the same kind are those below the same line, and the plans of the agent, which a host may
    hand over in the user's name.
    """
    asked, plans = 0, set[str]()
    kinds: dict[int, str] = {}
    newest: dict[str, int] = {}
    for at, message in enumerate(messages):
        if message.role == "assistant":
            proposed = ["".join(plan[2].split()) for plan in PLAN.finditer(text_of(message.blocks))]
            plans.update(proposed)
            newest.update(dict.fromkeys(["plan"] * bool(proposed), asked))
        elif text := user_text(message).strip():
            asked = at
            if found := _HANDED_OVER.match(text):
                kinds[at] = "plan" if "".join(found[2].split()) in plans else found[1]
                newest[kinds[at]] = at
    return {at: newest[kind] for at, kind in kinds.items() if newest[kind] > at}

"""What each provider demands of a message list, as data that layers and the last gate read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class ProviderRules:
    """The rules of one format.

    Attributes:
        groups_results: All results of one assistant message stand together in the one message
            that follows it (Anthropic, Gemini), rather than in a message each.
        first_role_user: The first message that is not a system message must be the user's.
        text_after_results: In a message that carries results, text follows them.
        refuses_empty_text: Text blocks without a visible character are refused.
        thinking_is_bound: A thinking block is void once anything before it was edited.
        joins_assistant_messages: Adjacent assistant messages count as one (Anthropic, Gemini, and
            Responses, whose items are parts of a turn).
        results_follow_call: Results are directly after the call; else anywhere after it.
        refuses_empty_messages: A message without any content is refused.
        refuses_trailing_thinking: An assistant turn may not end with a thinking block.
        refuses_trailing_space: A last message of the assistant may not end in white space.
        calls_follow_user: A message with calls may not follow another of the assistant (Gemini).
        refuses_empty_lists: A message may not name an empty list of content or of calls.
        unique_call_ids: No call id may come twice in a list; else only not twice in a message.
        system_follows_user: A system message may stand only between a user message and the
            assistant's answer (Anthropic); elsewhere it may stand anywhere.
        roles_alternate: "all" if no message may follow one of the same role (Bedrock Converse).
            "ours" if no message that we add may: some servers behind the format refuse that, and
            a host that uses them sends no such list (OpenAI Chat). Else the provider joins them.
        may_end_empty: A last message of the assistant may be empty, as some hosts ask for a
            continuation; Gemini refuses it there too.
        joins_results: Results in adjacent messages count as those of one, as the provider joins
            them; Gemini counts the results in the one message that follows the calls.
        unique_item_ids: No two messages may have the same `id` (Responses).
        outputs: By the type of a call, the type of what answers it, where each kind of call has
            one of its own (Responses).
        calls_have_ids: Calls and results are matched by an id; without, by order and name.
    """

    groups_results: bool = False
    first_role_user: bool = False
    text_after_results: bool = False
    refuses_empty_text: bool = False
    thinking_is_bound: bool = False
    joins_assistant_messages: bool = False
    results_follow_call: bool = False
    refuses_empty_messages: bool = False
    refuses_trailing_thinking: bool = False
    refuses_trailing_space: bool = False
    unique_call_ids: bool = False
    calls_follow_user: bool = False
    refuses_empty_lists: bool = False
    system_follows_user: bool = False
    roles_alternate: Literal["all", "ours", ""] = ""
    may_end_empty: bool = True
    joins_results: bool = True
    calls_have_ids: bool = True
    unique_item_ids: bool = False
    outputs: Mapping[str, str] = field(default_factory=dict[str, str])
